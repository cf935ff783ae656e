"""The end of a stalled run that a launcher of the user's started: no front end stands above its ranks.

The watcher of a node says in the table that it ends the job, and waits a moment: a thread of each rank then does what
the rank would do for an error of its own. A rank that waits in MPI or sleeps lets the thread go on. Those that cannot
are killed by the watcher.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from hpckit.errors import StallError
from hpckit.launch.failure import stalls_folder
from hpckit.run.directory import RunDirectory

if TYPE_CHECKING:
    from hpckit.comm.observe.watch import Watch

LOOK_SECONDS = 0.2


def end_with_stall(watch: Watch, directory: RunDirectory, abort: Callable[[StallError], None]) -> None:
    """Start the thread: when the watch ends the job, it gives `abort` the stall, with the words of the watch."""

    def listen() -> None:
        while not watch.is_ending():
            if watch.closed:
                return
            time.sleep(LOOK_SECONDS)
        from hpckit.cli.ending import stall_that_ended

        folder = stalls_folder(directory)
        text = stall_that_ended(folder) or "ranks wait for what does not come"
        abort(StallError(text, where="told by the watch", do=f"look at the lines named; {folder}"))

    watch.listen_for_end()
    threading.Thread(target=listen, daemon=True, name="end of a stalled run").start()
