"""What a graph needs to run on ranks: stages between exchanges, and how wide each halo must be.

A stage fills the halos that its sweeps read, in one exchange, and then makes one pass over memory for all that can be
computed from there on. Exchanges and widths follow from the offsets in the graph, so none can be forgotten, and none is
wider than what is read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hpckit.adjoint.program.between import window_of
from hpckit.adjoint.program.picture import draw_graph
from hpckit.adjoint.transforms import Grid
from hpckit.errors import InputError
from hpckit.kernels.graph.network import Map
from hpckit.kernels.graph.network import operations as operations_of_layers
from hpckit.kernels.graph.nodes import (
    ARRAYS,
    NETWORKS,
    OUTSIDE,
    Faces,
    Node,
    Offset,
    Walls,
    faces_at,
    hold,
    lines,
    operations,
    ordered,
    walls_at,
)
from hpckit.kernels.graph.simd import options
from hpckit.kernels.graph.sweep import GraphSweep, Reach, expanded
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.grid.halo import HaloField, halo_plan
from hpckit.plan.machine.machine import Machine
from hpckit.plan.pricing import price

MADE = ("hold", "fold")
REFLECTING = ("mirror", "antisymmetric")
OPERATIONS = 1.5e10
"""Operations a second of a rank in a pass over what the cache holds: heat on 512^2 cells, double, on Zen 4."""


@dataclass(frozen=True)
class Graph:
    """A traced model as a plain value: its leaves in the order of the arguments, and its results.

    axes: the names of the dims. grid: which of them have walls. faces: of each result where it stands. backward: it is
    an adjoint, which computes cells beyond walls from what is zero there, whatever it is multiplied by. joins: two
    stages become one pass where they can.
    """

    name: str
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    axes: tuple[str, ...]
    grid: Grid
    faces: tuple[Faces, ...]
    backward: bool = False
    joins: bool = False

    def __str__(self) -> str:
        names = ", ".join(map(named, self.inputs))
        return "\n".join([f"{self.name}({names}) on {', '.join(self.axes)}:", *(f"  {x}" for x in lines(self.outputs))])

    def drawing(self) -> str:
        """What `hp.draw` prints: a line a node, the exchanges, and what a cell costs."""
        return "\n".join(SweepProgram(self).describe())

    def drawing_svg(self) -> str:
        """What `hp.plan.draw_svg` shows: a box a node, arrows with offsets, exchanges in color, counts below."""
        program = SweepProgram(self)
        exchanged = [node for stage in program.stages for node in stage.exchanged]
        title = f"{self.name}: {operations(self.outputs)} operations on {', '.join(self.axes)}"
        return draw_graph(title, self.outputs, program.halo, exchanged, list(program.costs()))


@dataclass(frozen=True)
class SweepPass:
    """A sweep over the owned cells and, for folds, `depth` cells beyond the walls.

    more: how many values more than cells it makes in each dim at the last wall. layer: a dim; only what `more` has more
    than `most` along it, since one pass makes all that targets in centers and on faces have in common.
    """

    sweep: GraphSweep
    depth: Offset
    more: Offset
    most: Offset = ()
    layer: int | None = None


@dataclass(frozen=True)
class ProgramStage:
    """Halos to fill, numbers to compute, sweeps, with the folds and the sums of what they wrote; then networks."""

    exchanged: tuple[Node, ...]
    passes: tuple[SweepPass, ...]
    networks: tuple[Node, ...] = ()


@dataclass(frozen=True)
class ProgramPrice:
    """Seconds of a run: in exchanges, and in passes."""

    exchanges: float
    passes: float

    @property
    def seconds(self) -> float:
        """Of both."""
        return self.exchanges + self.passes

    def __str__(self) -> str:
        return f"{1e6 * self.seconds:.4g} us (exchanges {1e6 * self.exchanges:.3g}, passes {1e6 * self.passes:.3g})"


class SweepProgram:
    """The stages of a graph. exact: in NumPy's order and rounding. joins: whether two stages become one pass where they
    can (`joined`); the halos are then as much deeper. near: how many cells of others a rank may have between its own
    and a wall, and still compute what lies beyond (`near_walls`).
    """

    def __init__(self, graph: Graph, exact: bool = False, joins: bool = False, near: Offset = ()) -> None:
        self.graph, self.exact = graph, exact
        dims = graph.grid.dims
        self.near = near or (0,) * dims
        nodes = ordered(graph.outputs)
        self.arrays = tuple(node for node in nodes if node.op in ARRAYS)
        self.made = tuple(node for node in nodes if node.op in (*MADE, "sum", "weights"))
        level = _levels(nodes)
        self.direct = tuple(node for node in dict.fromkeys(graph.outputs) if node.op in MADE)
        self.networks = tuple(node for node in nodes if node.op in NETWORKS)
        made: list[tuple[SweepPass, ...]] = []
        targets: list[tuple[tuple[Node, ...], ...]] = []
        self._beyond: dict[Node, set[tuple[int, int]]] = {}  # of an array the walls (dim, side) beyond which it is read
        self.places = {node: graph.grid.closing(place) for node, place in zip(graph.outputs, graph.faces, strict=True)}
        self.places |= {
            node: graph.grid.closing(faces_at(node)) for node in (*self.arrays, *self.made) if node.op != "weights"
        }
        self.halo: dict[Node, Offset] = {node: self._reached(node) for node in self.arrays}
        first_read: dict[Node, int] = {}
        for turn in range(1 + max((level[node] for node in nodes), default=0)):
            by_depth: dict[Offset, list[Node]] = {}
            for node in self.made:
                if node.op != "weights" and level[node.args[0]] == turn:
                    by_depth.setdefault(node.value[2] if node.op == "fold" else (0,) * dims, []).append(node)
            for node in dict.fromkeys(graph.outputs):
                if level[node] == turn and node.is_field and node.op not in MADE:
                    by_depth.setdefault((0,) * dims, []).append(node)
            passes, nodes_of = self._passes(by_depth)

            def reads(leaf: Node, reach: Reach, depth: Offset, more: Offset, turn: int = turn) -> None:
                if self._reads(leaf, reach, depth, more):  # what is given goes with the first messages
                    first_read.setdefault(leaf, 0 if leaf.op == "field" else turn)

            for each in passes:
                for leaf, reach in each.sweep.reach.items():
                    reads(leaf, reach, each.depth, each.more)
            for node in self.networks:
                for arg in node.args if level[node] == turn else ():
                    leaf, offset = (arg.args[0], arg.value) if arg.op == "shift" else (arg, (0,) * dims)
                    if leaf.op in ARRAYS:
                        reach = tuple((o, o) for o in offset)
                        reads(leaf, reach, (0,) * dims, graph.grid.closing(faces_at(node)))
            made.append(passes)
            targets.append(nodes_of)
        self._targets = tuple(targets)
        self.stages = tuple(
            ProgramStage(
                tuple(leaf for leaf, first in first_read.items() if first == turn),
                passes,
                tuple(node for node in self.networks if level[node] == turn),
            )
            for turn, passes in enumerate(made)
        )
        self._require_walls()
        self.joined = self._joined() if joins else ()  # stages that are one pass with the next

    def targets(self, stage: int) -> tuple[tuple[Node, ...], ...]:
        """Of each pass of a stage the nodes whose values it makes: outputs, or what is held, folded or added up."""
        return self._targets[stage]

    def price(self, decomposition: Decomposition, machine: Machine) -> ProgramPrice:
        """What a run costs on a machine, for fields of a decomposition: its exchanges by their plans, its passes by the
        bytes that they move or the operations that they do, whichever takes longer.
        """
        topology, behind = decomposition.topology, len(decomposition.shape) - self.graph.grid.dims
        owned = [int(n.max()) for n in decomposition.all_owned()]
        members = math.prod(owned[self.graph.grid.dims :])
        box = owned[: self.graph.grid.dims]
        exchanges = passes = 0.0
        for turn, stage in enumerate(self.stages):
            if stage.exchanged:
                halos = [(*self.halo[node], *(0,) * behind) for node in stage.exchanged]
                fields = [HaloField(Decomposition(decomposition.shape, topology, halo)) for halo in halos]
                exchanges += price(halo_plan(fields), machine, itemsize=8).seconds
            for each in (it for it in stage.passes if it.layer is None):
                moved = float(self._moved(turn, each, owned)) * math.prod(box) * members
                copied = float(machine.copying(topology.size, np.array([moved / 2]))[0])
                passes += max(copied, each.sweep.operations(box) * members / OPERATIONS)
        return ProgramPrice(exchanges, passes)

    def _moved(self, turn: int, each: SweepPass, owned: Sequence[int]) -> float:
        """The bytes that a pass moves a cell; of two stages joined what is between them, and what the first has read,
        is in the cache for the second, if a window of the slabs fits it.
        """
        count = each.sweep.count().nbytes
        dims = self.graph.grid.dims
        for first in self.joined:
            between = self._targets[first][0]
            wide = self.widest(between)
            window = window_of(tuple(owned[:dims]), wide, math.prod(owned[dims:]) * len(between))
            if window.fits and turn == first:
                return (count - 16 * len(between)) * (1 + 2 * wide[1] / window.rows)
            if window.fits and turn == first + 1:
                return count - 8 * len({*between, *self.stages[first].passes[0].sweep.leaves} & {*each.sweep.leaves})
        return count

    def _joined(self) -> tuple[int, ...]:
        """The stages that become one pass with the next: centers alone, one pass each, what is between them read by the
        second alone. The halos of what the first reads become deeper by what the second reads of it.
        """
        found: list[int] = []
        plain = not any(map(any, (*self.graph.faces, *(faces_at(node) for node in self.arrays))))
        for turn in range(len(self.stages) - 1) if plain and self.graph.grid.dims > 1 else ():
            if turn - 1 in found or not self._can_join(turn):
                continue
            found.append(turn)
            between = self._targets[turn][0]
            wide = self.widest(between)
            more = []
            for leaf, reach in self.stages[turn].passes[0].sweep.reach.items():
                deep = (w + max(0, -low, high) for w, (low, high) in zip(wide, reach, strict=True))
                self.halo[leaf] = tuple(map(max, self.halo[leaf], deep))
                if any(self.halo[leaf]) and not any(leaf in stage.exchanged for stage in self.stages):
                    more.append(leaf)
            at = [0 if leaf.op == "field" else turn for leaf in more]
            self.stages = tuple(
                replace(
                    stage,
                    exchanged=(*stage.exchanged, *(leaf for leaf, k in zip(more, at, strict=True) if k == number)),
                )
                for number, stage in enumerate(self.stages)
            )
        return tuple(found)

    def _can_join(self, turn: int) -> bool:
        first, second = self.stages[turn : turn + 2]
        if first.networks or second.networks or (len(first.passes), len(second.passes)) != (1, 1):
            return False
        (between,), (made,) = self._targets[turn : turn + 2]
        read = [
            leaf
            for k, stage in enumerate(self.stages)
            if k != turn + 1
            for it in stage.passes
            for leaf in it.sweep.leaves
        ]
        later = [leaf for stage in self.stages[turn + 1 :] for leaf in stage.exchanged]
        return (
            all(node.op == "hold" and node not in self.graph.outputs and node not in read for node in between)
            and all(node.is_field and node.op != "fold" for node in made)
            and set(second.exchanged) <= set(between)
            and not set(later) & set(first.passes[0].sweep.leaves)
            and not any(leaf.op in ("fold", "output") for leaf in first.passes[0].sweep.leaves)
        )

    def _reached(self, node: Node) -> Offset:
        """How far beside its own values a rank computes an array."""
        if node.op != "fold":
            return (0,) * len(self.near)
        every = zip(node.value[1], self.near, self.places[node], strict=True)
        return tuple(d and d + (near and near + own) for d, near, own in every)

    def near_walls(self, decomposition: Decomposition) -> Offset:
        """The `near` of a decomposition: where a block at a wall is thinner than what its boundary conditions have
        copied, others have cells to which the sensitivities beyond the wall are added, and compute these, too.
        """
        found = []
        starts, counts = decomposition.all_starts(), decomposition.all_owned()
        for dim, n in enumerate(decomposition.shape[: self.graph.grid.dims]):
            deepest = max(
                (node.value[1][dim] for node in self.arrays if node.op == "fold" and _mirrors(node, dim)), default=0
            )
            away = np.concatenate([starts[dim], n - starts[dim] - counts[dim]])
            found.append(int(away[away <= deepest].max()) if deepest else 0)
        return tuple(found)

    def widest(self, nodes: Iterable[Node]) -> tuple[int, ...]:
        """The halo that holds those of all these nodes."""
        none = (0,) * self.graph.grid.dims
        return tuple(map(max, none, *(self.halo.get(node, none) for node in nodes)))

    def fits(self, decomposition: Decomposition) -> bool:
        """Whether no halo is wider than the thinnest block."""
        thinnest = decomposition.thinnest()
        return all(wide <= n for halo in self.halo.values() for wide, n in zip(halo, thinnest, strict=False))

    def describe(self, owned: Offset = ()) -> Iterator[str]:
        """What the program does, line by line: exchanges with their widths, passes with what a cell costs.

        owned: cells of a rank in each dim, for what depends on them: strips and stores past the cache.
        """
        yield str(self.graph)
        yield from self.costs(owned)

    def costs(self, owned: Offset = ()) -> Iterator[str]:
        """The stages alone."""
        for number, stage in enumerate(self.stages):
            names = [f"{named(node)} {self.halo[node]}" for node in stage.exchanged]
            if number - 1 in self.joined:
                yield f"stage {number}: in one pass with the stage before, a few slabs behind it"
            else:
                yield f"stage {number}: " + (f"one exchange of {', '.join(names)}" if names else "no exchange")
            for each in stage.passes:
                if each.layer is not None:
                    axis = self.graph.axes[each.layer]
                    yield f"  and {len(each.sweep.targets)} of these on the faces at the last wall of {axis}"
                    continue
                kept = f"; kept in slabs: {len(each.sweep.stored)}" if each.sweep.stored else ""
                yield f"  one pass: {each.sweep.count()}{kept} (unfused {each.sweep.unfused_bytes} bytes)"
                if owned:
                    yield from _said_options(each.sweep, owned)
            for node in stage.networks:
                layers = node.value[0]
                maps = [layer for layer in layers if isinstance(layer, Map)]
                sizes = " -> ".join(str(n) for n in (maps[0].inputs, *(layer.outputs for layer in maps)))
                times = {"apply": 1, "push": 3, "pull": 4}[node.op]  # matrices that a row is multiplied with, a map
                work = times * operations_of_layers(layers)
                yield f"  {node.op} {named(node.args[0])}: {sizes}, {work} operations a cell"

    def _passes(
        self, by_depth: Mapping[Offset, Sequence[Node]]
    ) -> tuple[tuple[SweepPass, ...], tuple[tuple[Node, ...], ...]]:
        """The passes of a stage, and the nodes of each: for each depth one over what all targets have, and a layer at
        the last walls for those with more.
        """
        dims, found, nodes_of = self.graph.grid.dims, [], []
        for depth, nodes in self._together(by_depth):
            common = tuple(map(min, *(self.places[node] for node in nodes), (1,) * dims))
            ways: list[tuple[list[Node], Offset, int | None]] = [(list(nodes), common, None)]
            for more in dict.fromkeys(self.places[node] for node in nodes):
                own = [node for node in nodes if self.places[node] == more]
                ways += [(own, more, dim) for dim in range(dims) if more[dim] > common[dim]]
            sweeps: dict[tuple[Node, ...], GraphSweep] = {}
            for own, more, layer in ways:
                key = tuple(map(_computed, own))
                sweep = sweeps.setdefault(key, GraphSweep(key, dims, not self.exact))
                found.append(SweepPass(sweep, depth, more, common, layer))
                nodes_of.append(tuple(own))
        return tuple(found), tuple(nodes_of)

    def _together(self, by_depth: Mapping[Offset, Sequence[Node]]) -> list[tuple[Offset, list[Node]]]:
        """The nodes of each pass, and how far beyond walls it goes: those needed equally far there, and others that go
        as far, which is not beyond walls at numbers, if both read the same and no cell's bits change by it: a product
        of one pass may be rounded where two sums have it, those of two passes are not.
        """
        none = (0,) * self.graph.grid.dims
        found: list[tuple[Offset, list[Node]]] = []
        for nodes in by_depth.values():
            depth = tuple(map(max, none, *(node.value[1] if node.op == "fold" else none for node in nodes)))
            before = next((own for other, own in found if other == depth and self._alike(own, nodes)), None)
            if before is None:
                found.append((depth, list(nodes)))
            else:
                before.extend(nodes)
        return found

    def _alike(self, first: Sequence[Node], second: Sequence[Node]) -> bool:
        """Whether one pass for all these nodes reads less than two, and gives the same bits."""
        made = [tuple(map(_computed, nodes)) for nodes in (first, second, (*first, *second))]
        one, other, both = (GraphSweep(each, self.graph.grid.dims, not self.exact) for each in made)
        products = [
            {node for node, _ in expanded(each.targets, (), each.dims) if node.op == "mul"} for each in (one, other)
        ]
        shared = set(one.leaves) & set(other.leaves)
        return bool(shared) and not products[0] & products[1] and set(both.kept) == {*one.kept, *other.kept}

    def _reads(self, leaf: Node, reach: Reach, depth: Offset, more: Offset) -> bool:
        """Note that an array is read at offsets, and return whether that is beside the values that a rank owns. more:
        how many more values than cells are made of it at the last wall.
        """
        wide = []
        every = zip(reach, depth, self.near, more, self.places[leaf], strict=True)
        for dim, ((low, high), d, near, extra, own) in enumerate(every):
            below, above = d - low, high + d + extra - own
            if d and near:  # from cells of others on; the last face is not the rank's own
                wide.append(max(0, near + below, near + above + own, high))
            else:
                wide.append(max(0, below, above, high))
            if self.graph.grid.walled[dim]:
                self._beyond.setdefault(leaf, set()).update((dim, k) for k, n in enumerate((below, above)) if n > 0)
        self.halo[leaf] = tuple(map(max, self.halo[leaf], wide))
        return any(wide)

    def _require_walls(self) -> None:
        for node in () if self.graph.backward else self.arrays:
            for dim, side in sorted(self._beyond.get(node, ())):
                if (given_walls(node)[dim] or (None, None))[side] is None:
                    axis, name = self.graph.axes[dim], named(node)
                    raise InputError(
                        f"{name} of {self.graph.name} is read beyond the walls of axis {axis}, where it has no values",
                        where=node.line,
                        do="make a field of it, by .hold(walls)"
                        if node.op == "output"
                        else f"give walls={{'{name}': {{'{axis}': hp.bc.zero_gradient}}}}, or make the axis periodic",
                    )


def _said_options(sweep: GraphSweep, owned: Offset) -> Iterator[str]:
    """What a pass over so many cells does for the cache, and why."""
    chosen = options(sweep, owned)
    if len(owned) == 3 and chosen.rows < owned[1]:
        yield f"    in strips of {chosen.rows} rows: neighbors lie in {chosen.slabs / 1e6:.1f} MB of slabs"
    if chosen.streams:
        count = sweep.count().nbytes
        yield (
            f"    the first result goes past the cache, since a pass moves {chosen.moved / 1e6:.0f} MB: "
            f"{count - 8} bytes a cell, not {count}"
        )


def placed(outputs: Sequence[Node], faces: Sequence[Faces], grid: Grid) -> tuple[Node, ...]:
    """Results such that each node stands at one place: what is to stand elsewhere, too, is held there."""
    found: list[Node] = []
    known = {node: faces_at(node) for node in ordered(outputs) if node.op in ARRAYS}
    for node, place in zip(outputs, faces, strict=True):
        elsewhere = node.is_field and known.setdefault(node, place) != place
        found.append(hold(node, grid.walls(None), place) if elsewhere else node)
    return tuple(found)


def named(node: Node) -> str:
    """The name of a leaf or of an array for the user."""
    return node.value[0] if node.op == "field" else str(node.value) if node.op in ("number", "network") else node.op


def given_walls(node: Node) -> Walls:
    """The user's boundary conditions of an array; folds are zero there."""
    walls = walls_at(node) or ()
    return tuple(pair and (OUTSIDE, OUTSIDE) for pair in walls) if node.op == "fold" else walls


def walls_of(node: Node) -> Walls:
    """What fills the halo of an array beyond walls, also where nothing that counts is read."""
    every = given_walls(node)
    return tuple(pair and tuple("zero_gradient" if fill is None else fill for fill in pair) for pair in every)


def _mirrors(fold: Node, dim: int) -> bool:
    """Whether what lies beyond a wall of a dim belongs to several layers inside."""
    return any(fill in REFLECTING for fill in fold.value[0][dim] or ())


def _computed(node: Node) -> Node:
    """What a sweep computes for a node: what is held, folded or added up, or itself."""
    return node.args[0] if node.op in (*MADE, "sum") else node


def _levels(nodes: Sequence[Node]) -> dict[Node, int]:
    """How many exchanges or sums a value has behind it."""
    level: dict[Node, int] = {}
    for node in nodes:
        behind = max((level[arg] for arg in node.args), default=0)
        level[node] = behind + (node.op in (*MADE, "sum", "output", "weights"))
    return level
