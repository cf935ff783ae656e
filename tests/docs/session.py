"""Runs the Python blocks of pages one after another, in a process of its own: requests and answers are JSON lines."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import traceback


def main() -> None:
    """Answer requests until standard input ends: {"fresh", "folder", "name", "code"} -> {"printed", "error"}."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what compiled code prints is no answer
    names: dict[str, object] = {}
    for line in sys.stdin:
        request = json.loads(line)
        if request["fresh"]:
            names = {"__name__": "__main__"}
        os.chdir(request["folder"])
        sys.path[0] = request["folder"]
        printed, error = io.StringIO(), ""
        with contextlib.redirect_stdout(printed):
            try:
                exec(compile(request["code"], request["name"], "exec", dont_inherit=True), names)
            except BaseException:
                error = traceback.format_exc()
        answers.write(json.dumps({"printed": printed.getvalue(), "error": error}) + "\n")


if __name__ == "__main__":
    main()
