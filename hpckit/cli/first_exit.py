"""Which rank of this host ended first: launchers end the others at once and then name any of them, or nobody."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from typing import Any


class FirstExit:
    """Watches the processes of the ranks on this host, from the moment that their placement is known.

    `rank` is the first that ended and `when` the monotonic time of it; both None until then. `watching`: the placement
    is known. On systems without process handles (`pidfd_open`, Linux 5.3) nothing is ever seen.
    """

    def __init__(self) -> None:
        self.rank: int | None = None
        self.when: float | None = None
        self.watching = False

    def watch(self, placement: list[dict[str, Any]] | None) -> None:
        """Begin to watch; `placement` is that of `provenance.json`, None where it is not there yet."""
        if self.watching or not placement or not hasattr(os, "pidfd_open"):
            return
        self.watching = True
        ranks: dict[int, int] = {}
        for place in placement:
            if place["host"] == socket.gethostname():
                try:
                    ranks[os.pidfd_open(place["pid"])] = place["rank"]
                except ProcessLookupError:
                    self.rank, self.when = place["rank"], time.monotonic()
                except OSError:
                    return
        if ranks:
            threading.Thread(target=self._wait, args=(ranks,), daemon=True).start()

    def _wait(self, ranks: dict[int, int]) -> None:
        poll = select.poll()
        for handle in ranks:
            poll.register(handle, select.POLLIN)
        ended = poll.poll()
        if self.when is None:
            # Two at once: the launcher was faster than we, and the culprit is not known.
            self.rank = ranks[ended[0][0]] if len(ended) == 1 else None
            self.when = time.monotonic()
        for handle in ranks:
            os.close(handle)
