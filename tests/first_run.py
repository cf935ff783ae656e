"""Seconds from a clone with nothing installed to the report of a run on 2 ranks, and what takes them.

`python -m tests.first_run --json` measures them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from hpckit.bench.command import main_of
from hpckit.bench.measure import result, spread
from hpckit.errors import SetupError
from hpckit.launch.scratch import scratch

ROOT = Path(__file__).parents[1]
README = re.compile(r"<!-- command: run -->\n```sh\n(?P<command>.+)\n```")
LIMIT = 120.0  # s: what a newcomer is willing to wait
# Nothing of earlier runs: kernels, settings, an installation that a variable points to.
FORGOTTEN = ("NUMBA_CACHE_DIR", "PYTHONPATH", "VIRTUAL_ENV")


def run(quick: bool = False) -> dict[str, Any]:
    """The README's first command, part by part, in a fresh clone with empty caches of kernels and settings; pip may use
    its own cache of downloads, as on a machine that has installed NumPy before. `first_run_s`: seconds in all (a time:
    less is better).
    """
    with scratch("hpckit-first-") as folder:
        parts = first_run(Path(folder))
    total = sum(parts.values())
    rows = [
        {"part": name, "seconds": round(seconds, 2), "share": round(seconds / total, 3)}
        for name, seconds in parts.items()
    ]
    rows.append({"part": "in all", "seconds": round(total, 2), "share": 1.0})
    return result("first_run", rows, {"first_run_s": spread([total])})


def first_run(folder: Path) -> dict[str, float]:
    """Seconds of each part of the README's first command, from a clone in `folder` on; clone included.

    Raises `SetupError` where this is no checkout, or a part fails.
    """
    found = README.search((ROOT / "README.md").read_text(encoding="utf-8")) if (ROOT / "README.md").is_file() else None
    if found is None or not (ROOT / ".git").exists():
        raise SetupError("the first run is measured in a checkout", do="git clone, pip install -e .")
    clone = folder / "hpckit"
    commands = {"clone": ["git", "clone", "-q", str(ROOT), str(clone)]}
    for part in found["command"].split(" && "):
        name = "virtual environment" if " venv " in part else "pip install" if " install " in part else "first run"
        commands[name] = ["bash", "-c", part]
    environment = {name: value for name, value in os.environ.items() if name not in FORGOTTEN}
    environment["HPCKIT_CONFIG"] = os.devnull
    seconds: dict[str, float] = {}
    for name, words in commands.items():
        begin = time.monotonic()
        done = subprocess.run(
            words, cwd=clone if clone.exists() else folder, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SetupError(f"{name} failed: {done.stderr.strip()[-400:]}", do="try it by hand: the README's command")
        seconds[name] = time.monotonic() - begin
        if name == "first run":
            seconds |= _inside(done.stdout, seconds[name])
    if not list(clone.glob("runs/*/report/index.html")):
        raise SetupError("the first run made no report", do="try it by hand: the README's command")
    return seconds


def _inside(printed: str, whole: float) -> dict[str, float]:
    """The run by its parts, from what it printed: until kernels are there, the loop, and the rest with the report."""
    ready = re.search(r"kernels and start state ready in ([\d.]+) s", printed)
    loop = re.search(r"(\d+):(\d\d) in the time loop", printed)
    compiled = float(ready[1]) if ready else 0.0
    looped = 60.0 * int(loop[1]) + float(loop[2]) if loop else 0.0
    return {
        "first run": max(0.0, whole - compiled - looped),  # start, initial state, output, report
        "kernels of the first run": compiled,
        "time loop of the first run": looped,
    }


if __name__ == "__main__":
    sys.exit(main_of(sys.modules[__name__], "python -m tests.first_run", sys.argv[1:]))
