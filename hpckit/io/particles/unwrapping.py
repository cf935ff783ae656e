"""Who has gone through a periodic side, for files that do not say it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from hpckit.plan.particles.snapshot import Snapshot


def with_images(frames: Iterable[Snapshot]) -> Iterator[Snapshot]:
    """The frames of a trajectory; those without images get them: each particle has gone the shortest way since the
    frame before, which is so as long as none goes half of the box between two frames.
    """
    places = images = None
    for frame in frames:
        found = frame
        if not frame.images.any() and places is not None and len(places) == frame.count:
            turns = np.rint((places - frame.positions) / frame.edges) * np.array(frame.periodic)
            found = replace(frame, images=(images + turns).astype(np.int32))
        places, images = frame.positions, found.images
        yield found
