"""`hpckit plan halo`: the ways to split a grid over ranks, proved, priced and drawn by their exchange, without MPI."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

from hpckit.cli.verbs.plan.halo_setting import EXAMPLE, RANKS, HaloSetting, read_setting
from hpckit.cli.verbs.plan.options import add_export, add_options, export, tell_proof
from hpckit.io.files import write_svg
from hpckit.plan.drawing import draw
from hpckit.plan.grid.draw import draw_halo_svg
from hpckit.plan.grid.halo import HaloPlan, halo_plan
from hpckit.plan.grid.split import Split, possible_splits
from hpckit.plan.pricing import price
from hpckit.plan.topology import Topology
from hpckit.report.units import counted
from hpckit.settings.table import Parser, bytes_text, print_table

ROWS = 10  # of the table
# The most messages that are priced; splits that send more bytes are then only counted.
MOST_MESSAGES = 20_000_000


def main(arguments: list[str]) -> int:
    """The operation `halo` of the verb `plan`."""
    options = _parser().parse_args(arguments)
    setting = read_setting(options)
    # The same code, with the same refusals, as `Mesh(comm, shape=…, halo=…)`.
    chosen = Topology.over(setting.ranks, setting.shape, setting.axes, setting.periodic, setting.halo)
    splits = possible_splits(setting.ranks, setting.shape, setting.axes, setting.periodic, setting.halo)
    mesh = next(split for split in splits if split.topology == chosen)
    if options.export_trace is not None:
        export(halo_plan(mesh.decomposition), options.export_trace, setting.machine, itemsize=setting.itemsize)
        return 0
    if options.draw is not None:
        plan = halo_plan(mesh.decomposition)
        if options.prove:
            _prove(plan, options.json)
        return _draw(plan, options.draw, setting)
    rows = _rows(splits, mesh, setting)
    if options.prove:
        for row in rows if options.json else _shown(rows):
            _prove(row.plan, options.json)
    if options.json:
        print(json.dumps({**_head(setting), "splits": [row.values() for row in rows]}))
        return 0
    _print(rows, setting)
    return 0


class PricedSplit:
    """A split with its price, if priced; chosen: a mesh chooses it by default."""

    def __init__(self, split: Split, plan: HaloPlan, chosen: bool, setting: HaloSetting, priced: bool) -> None:
        self.split, self.plan, self.chosen, self._itemsize = split, plan, chosen, setting.itemsize
        self.price = price(plan, setting.machine, itemsize=setting.itemsize) if priced else None
        self.seconds = self.price.seconds if self.price else math.inf

    def values(self) -> dict[str, Any]:
        """The row as plain values."""
        split, it = self.split, self.price
        return {
            "split": dict(zip(split.topology.names, split.topology.sizes, strict=True)),
            "chosen": self.chosen,
            "block": list(split.block),
            "messages": split.messages,
            "sent_bytes": split.sent_cells * self._itemsize,
            "surface": split.surface,
            "imbalance": split.imbalance,
            "redundant": split.redundant,
            "seconds": it and it.seconds,
            **(it.critical if it else {}),
            "link_bytes": it and it.link_bytes,
        }


def _rows(splits: list[Split], mesh: Split, setting: HaloSetting) -> list[PricedSplit]:
    """All splits, the quickest first, then those without a price, the fewest bytes first."""
    rows, left = [], MOST_MESSAGES
    for split in [mesh, *(split for split in splits if split is not mesh)]:
        plan = halo_plan(split.decomposition)
        messages = 2 * setting.ranks * len(plan.order)
        rows.append(PricedSplit(split, plan, split is mesh, setting, priced=messages <= left or split is mesh))
        left -= messages
    # Among equals the mesh's own choice comes first, then the order of the splits.
    return sorted(rows, key=lambda row: (_rounded(row.seconds), not row.chosen))


def _rounded(seconds: float) -> float:
    """A time rounded so that times equal but for rounding compare equal."""
    return float(f"{seconds:.9g}")


def _shown(rows: list[PricedSplit]) -> list[PricedSplit]:
    """The first rows, and the one of the mesh."""
    return [row for number, row in enumerate(rows) if number < ROWS or row.chosen]


def _parser() -> argparse.ArgumentParser:
    it = Parser(
        prog="hpckit plan halo",
        description="Compare the ways to split a grid over ranks by their halo exchange, or prove and draw it, without "
        "MPI.",
        epilog=f"example: {EXAMPLE}",
    )
    it.add_argument("--shape", metavar="CELLS", help="the grid, as in 4096x2048: axes y, x; of three dims z, y, x")
    it.add_argument("--ranks", metavar="N", help=f"how many ranks (default {RANKS}, or what --split amounts to)")
    it.add_argument("--halo", default="1", metavar="WIDTH", help="layers, one number or one a dim: 0,6,6 (default 1)")
    it.add_argument("--fields", default="1", metavar="N", help="fields that are exchanged together (default 1)")
    it.add_argument("--dtype", default="f8", help="of a cell, as NumPy calls it (default f8)")
    it.add_argument("--periodic", default="", metavar="AXES", help="axes that close on themselves, as in y,x")
    it.add_argument("--split", default="", metavar="y=N,…", help="ranks along these axes; the others are compared")
    add_export(it)
    add_options(it, "draw the split that hpckit chooses, or --split,")
    return it


def _prove(plan: HaloPlan, aside: bool) -> None:
    tell_proof(plan, aside, f"{_name(plan.decomposition.topology)}: ")


def _head(setting: HaloSetting) -> dict[str, Any]:
    return {
        "operation": "halo",
        "shape": list(setting.shape),
        "ranks": setting.ranks,
        "axes": list(setting.axes),
        "halo": list(setting.halo),
        "periodic": list(setting.periodic),
        "fields": setting.fields,
        "dtype": setting.dtype.str,
        "machine": setting.machine.name,
        "source": setting.machine.source,
    }


def _print(rows: list[PricedSplit], setting: HaloSetting) -> None:
    what = f"{setting.fields} field{'s' * (setting.fields > 1)} of {' x '.join(map(str, setting.shape))} cells"
    closed = f", periodic in {', '.join(setting.periodic)}" if setting.periodic else ""
    halo = ", ".join(map(str, setting.halo if len(set(setting.halo)) > 1 else setting.halo[:1]))
    print(f"halo exchange of {what} ({setting.dtype.name}), halo {halo}{closed}")
    print(f"on {counted(setting.ranks, 'rank')} of {setting.machine.name}; times in us")
    shown = _shown(rows)
    parts = ("latency", "transfer", "contention")
    table = [
        [
            f"{_name(row.split.topology)}{' *' * row.chosen}",
            " x ".join(map(str, row.split.block)),
            row.split.messages,
            bytes_text(row.split.sent_cells * setting.itemsize),
            *(f"{100 * share:.3g}" for share in (row.split.surface, row.split.imbalance, row.split.redundant)),
            "-" if row.price is None else f"{1e6 * row.seconds:.4g}",
            *("-" if row.price is None else f"{1e6 * row.price.critical[part]:.4g}" for part in parts),
        ]
        for row in shown
    ]
    head = ["split", "block", "messages", "sent", "surface %", "imbalance %", "redundant %", "time", *parts]
    print_table(head, table)
    _tell_choice(rows, setting)
    if len(shown) < len(rows):
        print(f"{len(rows) - len(shown)} more ways to split it: --json lists them all")
    unpriced = sum(row.price is None for row in rows)
    if unpriced:
        print(f"not priced, as they send no less than those above: {unpriced}; --split fixes an axis, and prices them")
    print("messages, sent, surface: the most of a rank; surface: cells it sends, of those it owns, corners included")
    print("imbalance: the largest block over the mean; redundant: halo cells that copy owned ones, of the grid's cells")
    print("latency to contention: what the path that ends last is made of")
    if setting.machine.source:
        print(f"numbers of the machine: {setting.machine.source}")


def _name(topology: Topology) -> str:
    return ", ".join(f"{name}={size}" for name, size in zip(topology.names, topology.sizes, strict=True))


def _tell_choice(rows: list[PricedSplit], setting: HaloSetting) -> None:
    """Print the mesh's own choice, and how to get the best split."""
    mesh, best = next(row for row in rows if row.chosen), rows[0]
    axes = ", ".join(f"{name}={size}" for name, size in setting.axes.items())
    print(f"* what hpckit chooses: Mesh(comm, {axes}, shape=…, halo=…)")
    if best is not mesh and mesh.seconds > 0:
        share = 100 * best.seconds / mesh.seconds
        print(f"the best takes {share:.3g} % of its time here: Mesh(comm, {_name(best.split.topology)})")


def _draw(plan: HaloPlan, target: str, setting: HaloSetting) -> int:
    if target == "-":
        print(draw(plan))
        return 0
    picture = draw_halo_svg(plan, setting.machine, setting.itemsize)
    write_svg(Path(target), picture)
    print(f"{plan.title()}: drawn in {target}")
    return 0
