"""Our own programs, unmodified, on ranks that SimGrid simulates (SMPI): nightly, beside their prices.

mpi4py is built from source with SMPI's compiler, which takes minutes. A launcher runs each rank as a thread of one
interpreter, since SimGrid gives programs, not their libraries, memory of their own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from conftest import PROGRAMS, made_once, run_limited

from hpckit.plan.machine.machine import Level, Machine
from hpckit.plan.machine.simgrid import REPLAY, platform

LATENCY, BANDWIDTH = 2e-6, 10e9
OPTIONS = [word for word in REPLAY.split() if word.startswith("--cfg=network")]
OPTIONS += ["--cfg=contexts/factory:thread", "--cfg=smpi/wtime:0", "--cfg=smpi/simulate-computation:no"]
OPTIONS += [
    "--cfg=smpi/async-small-thresh:0",
    "--cfg=smpi/send-is-detached-thresh:1000000000",
    "--log=root.thres:error",
    # SMPI's own all-gather starts all messages and asks each whether it is there, again after every one that is: on 256
    # ranks minutes for one of them.
    "--cfg=smpi/allgather:rdb",
]


def python_library() -> list[str]:
    """How the linker finds this interpreter."""
    folder, name = sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("LDVERSION")
    return [f"-L{folder}", f"-lpython{name}", f"-Wl,-rpath,{folder}"]


def built(folder: Path) -> None:
    """mpi4py with SMPI in `site`, and the launcher."""
    import mpi4py

    folder.mkdir()
    compiler = folder / "smpicc"  # SMPI's linker accepts no symbol that is open
    compiler.write_text(f'#!/bin/sh\nexec smpicc "$@" {" ".join(python_library())}\n')
    compiler.chmod(0o755)
    # SMPI replaces `free`, which is also the name of a member of mpi4py's classes.
    environment = {**os.environ, "MPICC": str(compiler), "CFLAGS": "-O0 -g0 -w -DSMPI_NO_OVERRIDE_MALLOC=1"}
    where = ["--no-deps", "--no-cache-dir", "--no-binary", "mpi4py", "--target", str(folder / "site")]
    install = [sys.executable, "-m", "pip", "install", "-q", *where, f"mpi4py=={mpi4py.__version__}"]
    done = subprocess.run(install, env=environment, capture_output=True, text=True, timeout=3600, check=False)
    if done.returncode:
        pytest.skip(f"mpi4py is not built with SMPI here: {done.stderr[-300:]}")
    include = sysconfig.get_paths()["include"]
    source = PROGRAMS / "simulated_ranks.cpp"
    words = [f"-I{include}", "-I/usr/include/smpi", str(source), "-o", str(folder / "launcher"), "-lsimgrid"]
    subprocess.run(["g++", "-O1", *words, *python_library()], check=True, timeout=600)


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("smpicc") is None, reason="needs SimGrid (Debian: libsimgrid-dev)")
def test_halos_and_sums_on_simulated_ranks(tmp_path, tmp_path_factory):
    made = made_once(tmp_path_factory, "smpi", built)
    machine = Machine("flat", (Level("all", 0, LATENCY, BANDWIDTH),), 0.0, 1e15, copy=1e15)
    site = sysconfig.get_paths()["purelib"]
    more = {"PYTHONPATH": os.pathsep.join([str(made / "site"), str(PROGRAMS)]), "NETWORK": f"{LATENCY} {BANDWIDTH}"}
    before = f"import site, mpi4py; site.addsitedir({site!r}); mpi4py.rc.initialize = mpi4py.rc.finalize = False"
    for ranks in (16, 64, 128, 256, 1024):
        (tmp_path / "platform.xml").write_text("\n".join(platform(machine, ranks)) + "\n")
        actors = [
            f'<actor host="h{rank}" function="app"><prop id="instance_id" value="app"/><prop id="rank" value="{rank}"/>'
            "</actor>"
            for rank in range(ranks)
        ]
        head = '<?xml version="1.0"?>\n<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">\n'
        (tmp_path / "ranks.xml").write_text(f'{head}<platform version="4.1">{"".join(actors)}</platform>')
        command = [made / "launcher", "platform.xml", ranks, "ranks.xml", "simulated_ranks", before, *OPTIONS]
        done = run_limited([*map(str, command)], 400, cwd=tmp_path, env={**os.environ, **more})
        assert done.code == 0, (done.stdout + done.stderr)[-3000:]
        found = json.loads(done.stdout.splitlines()[-1])
        assert found["ranks"] == ranks
        assert found["priced"] == pytest.approx(found["simulated"], rel=0.1), found
