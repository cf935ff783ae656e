"""A rank that reads slowly hears every plan, an empty one before the next too."""

import time

import numpy as np
from mpi4py import MPI

from hpckit.serving.team import Team


class Slow(Team):
    """Ranks above 0 stop for a moment whenever all have met."""

    def meet(self):
        super().meet()
        if self.rank:
            time.sleep(0.02)


team = Slow(MPI.COMM_WORLD)
team.make_room(8)
plans = [[4, 5], [], [1, 2, 3], []]
if team.rank == 0:
    for plan in plans:
        team.tell(np.array(plan, np.int64))
    print("good")
else:
    heard = [team.hear().tolist() for _ in plans]
    assert heard == plans, heard
