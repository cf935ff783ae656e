"""Rivals in C, built when a benchmark runs and only where a compiler is there."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

SOURCES = Path(__file__).parent / "sources"


def compiler() -> str | None:
    """The C compiler to build rivals with: `CC` or the first of gcc, cc, clang; None where there is none."""
    names = (os.environ.get("CC", ""), "gcc", "cc", "clang")
    return next((name for name in names if name and shutil.which(name)), None)


def build(source: str, *flags: str) -> ctypes.CDLL | None:
    """The shared library of `source` (a file name in this package's folder `sources`), None without a compiler.

    Built with -O3 -march=native and `flags`, in a temporary folder that is gone once the library is loaded.
    """
    cc = compiler()
    if cc is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        library = str(Path(folder, "rival.so"))
        command = [cc, "-O3", "-march=native", "-shared", "-fPIC", *flags, "-o", library, str(SOURCES / source), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
        return ctypes.CDLL(library)


def pointers(*arrays: np.ndarray) -> list[ctypes.c_void_p]:
    """The arrays as arguments of a function in C."""
    return [array.ctypes.data_as(ctypes.c_void_p) for array in arrays]
