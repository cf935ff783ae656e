"""Models of all shapes under random schedules, split over ranks, replicas and stages: what each request has alone on
one rank, tokens and the bits of the logits: on 1, 2, 3, 4, 6 ranks.
"""

import sys
from pathlib import Path

from mpi4py import MPI

sys.path.insert(0, str(Path(__file__).parents[1] / "serving"))
from schedules import alone, drawn, requests, scheduled

WORLD = MPI.COMM_WORLD
folder = Path(sys.argv[1])
replicas, stages = (int(word) for word in sys.argv[2:])
preempted = found = accepted = 0
for model in sorted((folder / "models").iterdir()):
    given = requests(1)
    expected = alone(model, given) if not WORLD.rank else None
    for seed in (0, 4):
        engine = drawn(model, seed, folder / "draft", comm=WORLD, replicas=replicas, stages=stages)
        if WORLD.rank:
            engine.follow()
            continue
        assert scheduled(engine, given, seed, expected[0]) == expected, (model.name, seed)
        engine.close()
        preempted += engine.scheduler.preemptions
        found += engine.counters.found_tokens
        accepted += engine.counters.accepted

if not WORLD.rank:
    assert min(preempted, found, accepted) > 0, (preempted, found, accepted)
    print("good")
