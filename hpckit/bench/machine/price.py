"""Prices against measured times on 2 ranks: the default all-reduce and halo exchanges; the machine is calibrated first.

The sizes that are priced are not among those of the calibration. `price_all_reduce_median` and `price_halo_median` are
the medians of |price / measured - 1|: below 0.2 is good.
"""

from __future__ import annotations

import sys
from typing import Any

from hpckit.bench.machine import calibrate
from hpckit.bench.machine.times import AUTO, HALO, Case, measured
from hpckit.bench.measure import Ratios, Rows, result, spread
from hpckit.plan.collective.algorithms import ALGORITHMS, collective_plan
from hpckit.plan.collective.memory import IN_MEMORY
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.grid.halo import HaloField, halo_plan
from hpckit.plan.pricing import price
from hpckit.plan.protocol import Plan
from hpckit.plan.topology import Topology

RANKS = 2
# Between the sizes of the calibration, from 8 bytes to 64 MB.
TESTED = (8, 512, 2**13, 2**15, 2**17, 2**19, 2**21, 2**23, 2**25, 64_000_000)
CUBES = (64, 256)  # cells of a halo's block along each dim
QUICK = 2**20
NAMES = ("z", "y", "x")


def run(quick: bool = False) -> dict[str, Any]:
    """Calibrate on 2 ranks, then price and time the same calls, in turn; with `quick` up to 1 MiB, one halo."""
    sizes = tuple(n for n in calibrate.PROBE_SIZES if not quick or n <= QUICK)
    reduced: list[Case] = [("all_reduce", AUTO, nbytes) for nbytes in TESTED if not quick or nbytes <= QUICK]
    halos: list[Case] = [(HALO, "exchange", n) for n in (CUBES[:1] if quick else CUBES)]
    # In jobs of their own: beside messages, which take many times as long, few rounds of calls in memory are timed.
    jobs: list[list[Case]] = [
        [*calibrate.memory_cases(sizes), *reduced],
        [*calibrate.probe_cases(RANKS, sizes), *halos],
    ]
    found: dict[Case, float] = {}
    options: dict[Case, dict[str, Any]] = {}
    for cases in jobs:
        times = measured(RANKS, cases, 15.0 if quick else 60.0)
        found |= times.undisturbed()
        options |= times.options
    machine = calibrate.model({RANKS: found}, "this node", "measured")
    rows = Rows()
    off: dict[str, list[float]] = {"all_reduce": [], HALO: []}
    for case in (*reduced, *halos):
        operation, _, size = case
        plan = _plan(case, options[case])
        if plan is None:
            print(f"{case}: by the library, which has no price", file=sys.stderr)
            continue
        nbytes = size if operation == "all_reduce" else 0.0
        predicted = price(plan, machine, nbytes).seconds
        off[operation].append(abs(predicted / found[case] - 1))
        rows.append(
            {
                "case": f"{operation} {options[case].get('algorithm', '')}".strip(),
                "size": size,
                "priced_us": round(1e6 * predicted, 2),
                "measured_us": round(1e6 * found[case], 2),
                "priced_over_measured": round(predicted / found[case], 3),
            }
        )
    ratios = Ratios()
    for key, each in (("price_all_reduce_median", off["all_reduce"]), ("price_halo_median", off[HALO])):
        if each:
            ratios[key] = spread(each)
    return result("price", rows, ratios)


def _plan(case: Case, options: dict[str, Any]) -> Plan | None:
    """The plan that ran; None if the MPI library's own algorithm did."""
    operation, _, size = case
    if operation == HALO:
        topology = Topology(NAMES, (RANKS, 1, 1), NAMES)
        node = [0] * RANKS if options["within_node"] else None
        return halo_plan(HaloField(Decomposition((RANKS * size, size, size), topology, 1), itemsize=8), node=node)
    name = options["algorithm"]
    if name not in ALGORITHMS[operation] | IN_MEMORY[operation]:
        return None
    more = {key: value for key, value in options.items() if key != "algorithm"}
    return collective_plan(operation, name, RANKS, **more)
