"""What a program does for fields of some shapes, part by part: tapes of compiled work, exchanges, sums, networks.

A script is made once, and knows fields by slots: those given to a run come first (inputs, then results), behind them
those between stages, which are its place's own. On one rank, where an exchange is a copy within the rank and nobody
listens, the whole script is one tape; many turns of it are then one call.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from hpckit.adjoint.networks import run_network
from hpckit.adjoint.program.joined import add_joined
from hpckit.adjoint.program.place import Numbers, Place, wall_value
from hpckit.adjoint.program.stages import MADE, SweepPass, walls_of
from hpckit.adjoint.transforms import ADDED_UP
from hpckit.grid import sums
from hpckit.grid.field import Field
from hpckit.kernels.device_array import address
from hpckit.kernels.graph import dispatch
from hpckit.kernels.graph.nodes import ARRAYS, OUTSIDE, Node, faces_at, make, sets_wall, walls_at
from hpckit.kernels.graph.region import Box
from hpckit.kernels.graph.simd import own_rows
from hpckit.kernels.graph.tape import Tape

Part = Callable[[Sequence[Field], Numbers], None]
ScriptTurn = tuple[Sequence[Field], Numbers]
"""The fields and the numbers that are given to a run."""


class Script:
    """The parts for fields like those given, and as often the same one. values: the slot of each array on the way.

    first: for each output the number of the first that is equal to it. apart: every array on the way is a field, also
    between stages that are joined.
    """

    def __init__(
        self,
        place: Place,
        inputs: Mapping[Node, Any],
        outs: Sequence[Field | None],
        filled: Sequence[Node],
        added: Sequence[Field | None],
        first: Sequence[int],
        apart: bool = False,
    ) -> None:
        self._place = place
        self._compiled = not place.device.is_gpu
        self._parts: list[Part] = []
        self._tape: Tape | None = None
        program = place.program
        given = [(node, field) for node, field in inputs.items() if isinstance(field, Field)]
        self._models: list[Any] = [field for _, field in given]  # fields like those in the slots
        self._models += [out for out in (*outs, *added) if out is not None]
        self._given = len(self._models)
        self._own = place.own_numbers(inputs)
        self.values = {node: slot for slot, (node, _) in enumerate(given)}
        beyond: dict[int, Any] = {}  # of each array given the walls that its halo is filled by
        for slot, (node, field) in enumerate(given):
            if node not in program.halo:
                continue
            walls = walls_of(node)
            if not place.fits(node, field) or beyond.setdefault(id(field.data), walls) != walls:
                self.values[node] = self._slot(place.kept(("copy", node), node))
                self._move(slot, self.values[node])
            if node not in filled:  # a wall across another would undo what that one's fill has written beyond it
                self._set_walls(node, self.values[node])
        results: dict[Node, int] = {}
        moved: list[tuple[int, int]] = []
        slot = len(given)
        for k, (node, out) in enumerate(zip(program.graph.outputs, outs, strict=True)):
            if out is None:
                continue
            if first[k] < k:
                moved.append((results[node], slot))
            elif node.op in MADE and not place.fits(node, out):
                results[node] = self._slot(place.kept(("result", node), node))
                moved.append((results[node], slot))
            else:
                results[node] = slot
            slot += 1
        self.values.update({node: results[node] for node in program.direct})
        joined = program.joined if self._compiled and not apart and not self._own else ()
        for turn, stage in enumerate(program.stages):
            if turn - 1 in joined:
                continue
            self._exchange([node for node in stage.exchanged if node not in filled])
            if turn in joined:
                self._join(turn, results)
                continue
            made: dict[Node, int] = {}
            for each, nodes in zip(stage.passes, program.targets(turn), strict=True):
                self._sweep(each, nodes, results, made)
            for node, there in made.items():
                if node.op == "fold":
                    self._fold(there, node.value)
                elif node.op == "sum":
                    self._add(self._summed(node, there))
                else:
                    self._set_walls(node, there)
            for node in stage.networks:
                self._network(node)
        for source, target in moved:
            self._move(source, target)
        for node, onto in zip(program.graph.outputs, added, strict=False):
            if onto is not None:
                self._move(results[node], slot, adds=True)
                slot += 1
        self._end_tape()
        self._models[: self._given] = [None] * self._given  # they are the caller's

    @property
    def is_one_tape(self) -> bool:
        """Whether it is compiled work alone, from the first to the last."""
        return len(self._parts) == 1 and isinstance(self._parts[0], _TapePart)

    def field(self, slot: int, given: Sequence[Field]) -> Field:
        """The field in a slot, where these were given."""
        return given[slot] if slot < self._given else self._models[slot]

    def run(self, given: Sequence[Field], numbers: Numbers) -> Numbers:
        """Compute the results that are fields; returns the numbers on the way, with those given."""
        fields = [*given, *self._models[self._given :]]
        for part in self._parts:
            part(fields, numbers)
        return numbers

    def prepared(self, given: Sequence[Field]) -> Callable[[], None] | None:
        """What a run with these fields and no numbers does, if it is one tape: it knows the addresses of the fields,
        and keeps none alive.
        """
        return self._parts[0].prepared(given, {}) if self.is_one_tape else None  # type: ignore[attr-defined]

    def run_all(self, turns: Sequence[ScriptTurn]) -> None:
        """Run it for one set of fields and numbers after the other."""
        if len(turns) > 1 and self.is_one_tape:
            self._parts[0].turns(turns)  # type: ignore[attr-defined]
            return
        for given, numbers in turns:
            self.run(given, numbers)

    # ---- how it is made

    def _slot(self, field: Field) -> int:
        for slot in range(self._given, len(self._models)):
            if self._models[slot] is field:
                return slot
        self._models.append(field)
        return len(self._models) - 1

    def _on_tape(self) -> Tape:
        if self._tape is None:
            self._tape = Tape()
        return self._tape

    def _taped(self, slot: int) -> int:
        """The slot of a field on the tape."""
        return slot if slot < self._given else self._on_tape().own(self._models[slot].data)

    def _end_tape(self) -> None:
        if self._tape is not None and len(self._tape):
            self._parts.append(_TapePart(self._tape, self._place, self._given))
        self._tape = None

    def _add(self, part: Part) -> None:
        self._end_tape()
        self._parts.append(part)

    def _move(self, source: int, target: int, adds: bool = False) -> None:
        """The owned cells of a field to another, or added to it."""
        if not self._compiled:

            def part(fields: Sequence[Field], numbers: Numbers) -> None:
                if adds:
                    fields[target].interior[...] += fields[source].interior
                else:
                    fields[target].interior[...] = fields[source].interior

            self._add(part)
            return
        place = self._place
        blocks = place.block(self._models[source]), place.block(self._models[target])
        owned = self._models[source].decomposition.owned(place.mesh.rank)[: place.grid.dims]
        self._on_tape().move(self._taped(source), self._taped(target), blocks, owned, adds)

    def _exchange(self, nodes: Sequence[Node]) -> None:
        if not nodes:
            return
        place, slots = self._place, [self.values[node] for node in nodes]
        models = [self._models[slot] for slot in slots]
        exchange = place.exchange(nodes, models)
        wraps = exchange.wraps if self._compiled else None
        if wraps is None:
            self._add(lambda fields, numbers: exchange([fields[slot] for slot in slots]))
            return
        tape, dims = self._on_tape(), range(place.grid.dims)
        for k, dim in wraps:
            tape.wrap(self._taped(slots[k]), models[k].data, dim, models[k].decomposition.halo[dim])
        for node, slot, model in zip(nodes, slots, models, strict=True):
            for dim, fills in zip(dims, walls_of(node), strict=True):
                width, face = model.decomposition.halo[dim], faces_at(node)[dim]
                for high, fill in enumerate(fills or ()):
                    if fill is None or not place.sides[dim][high]:
                        continue
                    edge = self._edge(slot, dim, high)
                    if width:
                        tape.fill(self._taped(slot), model.data, dim, width, edge, bool(high), fill, face)
                    if face and sets_wall(fill):  # beyond the walls of the dims before, too
                        tape.wall(self._taped(slot), model.data, dim, edge, wall_value(fill))

    def _edge(self, slot: int, dim: int, high: int) -> int:
        """The owned layer of an array at a wall."""
        where = self._models[slot].decomposition
        return where.halo[dim] + (where.owned(self._place.mesh.rank)[dim] - 1 if high else 0)

    def _set_walls(self, node: Node, slot: int) -> None:
        """Values on the walls themselves, which some boundary conditions of arrays on faces write."""
        for dim, fills in enumerate((walls_at(node) or ()) if node.op in ARRAYS else ()):
            for high, fill in enumerate(fills or ()):
                if faces_at(node)[dim] and sets_wall(fill) and self._place.sides[dim][high]:
                    self._set_layer(slot, dim, self._edge(slot, dim, high), wall_value(fill))

    def _set_layer(self, slot: int, dim: int, layer: int, value: float) -> None:
        if self._compiled:
            self._on_tape().wall(self._taped(slot), self._models[slot].data, dim, layer, value)
            return

        def part(fields: Sequence[Field], numbers: Numbers) -> None:
            fields[slot].data.swapaxes(0, dim)[layer] = value

        self._add(part)

    def _sweep(
        self, each: SweepPass, nodes: Sequence[Node], results: Mapping[Node, int], made: dict[Node, int]
    ) -> None:
        """A pass; the slots of its nodes are added to those that the stage has made."""
        place = self._place
        for node in nodes:
            if node in made:
                continue
            if node.op in MADE:
                if node not in self.values:
                    self.values[node] = self._slot(place.kept(node, node))
                made[node] = self.values[node]
            elif node.op == "sum":
                sums_so_far = sum(other.op == "sum" for other in made)
                made[node] = self._slot(place.kept(("sum", sums_so_far, place.program.places[node]), node))
            else:
                made[node] = results[node]
        box = place.box(each)
        if any(a >= b for a, b in zip(*box, strict=True)):
            return
        targets = [made[node] for node in nodes]
        slots = [*targets, *(self.values[leaf] for leaf in each.sweep.leaves)]
        if self._compiled:
            blocks = [place.block(self._models[slot]) for slot in slots]
            dispatch.require(each.sweep, blocks, box)
            rows = own_rows(each.sweep, box, blocks[0].members, self._own)
            if rows:
                self._add(self._filled(rows))
            self._on_tape().sweep(each.sweep, [self._taped(slot) for slot in slots], blocks, box, rows)
        else:
            self._add(self._swept(each, slots, len(targets), box))

    def _join(self, turn: int, results: Mapping[Node, int]) -> None:
        """A stage and the next in one pass."""
        place = self._place
        program = place.program
        (between,), (nodes,) = program.targets(turn), program.targets(turn + 1)
        for node in nodes:
            if node.op in MADE and node not in self.values:
                self.values[node] = self._slot(place.kept(node, node))
        slots = {node: self.values[node] if node.op in MADE else results[node] for node in nodes}
        made = [(self._taped(slots[node]), place.block(self._models[slots[node]])) for node in nodes]
        passes = program.stages[turn].passes[0], program.stages[turn + 1].passes[0]

        def taped(leaf: Node) -> tuple[int, Any]:
            slot = self.values[leaf]
            return self._taped(slot), place.block(self._models[slot])

        add_joined(self._on_tape(), place, passes, between, made, taped)

    def _swept(self, each: SweepPass, slots: Sequence[int], targets: int, box: Box) -> Part:
        place, own = self._place, [node for node in each.sweep.numbers if node in self._own]

        def part(fields: Sequence[Field], numbers: Numbers) -> None:
            blocks = [place.block(fields[slot]) for slot in slots]
            values = [place.number(node, numbers) for node in each.sweep.numbers]
            dispatch.bind(each.sweep, blocks[:targets], blocks[targets:], box, own)(values)

        return part

    def _filled(self, rows: Mapping[Node, np.ndarray]) -> Part:
        place = self._place

        def part(fields: Sequence[Field], numbers: Numbers) -> None:
            for node, row in rows.items():
                row[...] = place.number(node, numbers)

        return part

    def _summed(self, node: Node, slot: int) -> Part:
        """A number, or one for each member."""
        place = self._place
        counts, comm = place.counts(faces_at(node)), place.mesh.comm

        def part(fields: Sequence[Field], numbers: Numbers) -> None:
            if place.in_ensemble:
                rows = np.moveaxis(fields[slot].to_host(), -1, 0)
                numbers[node] = sums.totals(rows, comm, counts[1] // len(rows))
            else:
                numbers[node] = sums.total(fields[slot].interior, comm, counts, True)

        return part

    def _fold(self, slot: int, value: tuple) -> None:
        """Add what lies beyond walls to the cells that the fill had copied there; last dim first, low side first."""
        place = self._place
        walls, depth, _, faces = value
        model = self._models[slot]
        for dim in reversed(range(place.grid.dims)):
            sides = []
            for high, fill in enumerate(walls[dim] or ()):
                away = place.near(dim, high) if depth[dim] else 0 if place.sides[dim][high] else None
                if away is not None and fill is not None and fill != OUTSIDE:
                    edge = self._edge(slot, dim, high)
                    edge += away + (faces[dim] and away > 0) if high else -away  # the last rank has the face at its end
                    sides.append((edge, bool(high), fill))
            for edge, high, fill in sides:
                if not depth[dim] or isinstance(fill, float):
                    continue
                kind = "zero_gradient" if fill == ADDED_UP else fill
                if self._compiled:
                    tape = self._on_tape()
                    tape.fold(self._taped(slot), model.data, dim, depth[dim], edge, high, kind, faces[dim])
                else:
                    self._add(_folded(slot, dim, depth[dim], edge, -1 if high else 1, kind, faces[dim]))
            for edge, _, fill in sides:  # what was on the wall is not read
                if faces[dim] and sets_wall(fill):
                    self._set_layer(slot, dim, edge, 0.0)

    def _network(self, node: Node) -> None:
        """A network forward or backward, where the fields are: its outputs, and the sensitivities to its weights."""
        place = self._place
        program = place.program
        for each in program.arrays:
            if each.op == "output" and each.args[0] is node:
                self.values[each] = self._slot(place.kept(each, each))
        outs = {
            each.value[0]: self.values[each] for each in program.arrays if each.op == "output" and each.args[0] is node
        }
        box = (0,) * place.grid.dims, place.owned(faces_at(node))
        shape = place.decomposition(faces_at(node)).owned(place.mesh.rank)
        count = place.counts(faces_at(node))[1]
        asked = make("weights", node)
        comm = place.mesh.comm if asked in program.made else None

        def part(fields: Sequence[Field], numbers: Numbers) -> None:
            args: list[Any] = []
            for arg in node.args:
                leaf, offset = (arg.args[0], arg.value) if arg.op == "shift" else (arg, ())
                if arg.is_field:
                    args.append(place.block(fields[self.values[leaf]]).part(box, offset))
                else:
                    args.append(place.number(arg, numbers))
            made = {k: fields[slot].interior for k, slot in outs.items()}
            found = run_network(node, args[0], args[1:], made, shape, comm, count, place.in_ensemble)
            if found is not None:
                numbers[asked] = found

        self._add(part)
        for each in program.arrays:
            if each.op == "output" and each.args[0] is node:
                self._set_walls(each, self.values[each])


def _folded(slot: int, dim: int, depth: int, edge: int, step: int, fill: str, face: bool) -> Part:
    """As `Tape.fold`, by the operations of arrays."""

    def part(fields: Sequence[Field], numbers: Numbers) -> None:
        layers = fields[slot].data.swapaxes(0, dim)
        for k in range(depth):
            there, here = edge - step * (1 + k), edge + step * (0 if fill == "zero_gradient" else k + face)
            beyond, inside = layers[there : there + 1], layers[here : here + 1]  # views also where a layer is a number
            if fill == "antisymmetric":
                inside -= beyond
            else:
                inside += beyond

    return part


class _TapePart:
    """A tape as a part of a script; it takes the first `given` fields."""

    def __init__(self, tape: Tape, place: Place, given: int) -> None:
        self._tape, self._place, self._given = tape, place, given

    def __call__(self, fields: Sequence[Field], numbers: Numbers) -> None:
        self.prepared(fields, numbers)()

    def prepared(self, fields: Sequence[Field], numbers: Numbers) -> Callable[[], None]:
        """The call that plays it once, as often as their arrays are the same."""
        addresses = [address(field.data) for field in fields[: self._given]]
        values = [self._place.number(node, numbers) for node in self._tape.nodes]
        return partial(self._tape.play, np.array([addresses], np.int64), np.array([values], np.float64))

    def turns(self, turns: Sequence[ScriptTurn]) -> None:
        """Once for each set of fields and numbers."""
        if len(turns) == 1:  # a step alone: no more than it must be
            self.prepared(*turns[0])()
            return
        taken = [list(map(id, fields[: self._given])) for fields, _ in turns]
        every_field = {id(field): field for fields, _ in turns for field in fields[: self._given]}  # few for many turns
        known = {key: address(field.data) for key, field in every_field.items()}
        where = np.array([[known[key] for key in keys] for keys in taken], np.int64)
        every: list[list[float]] = []
        before: list[Any] = []
        for _, numbers in turns:
            given = [*numbers.values()]
            if not every or not all(map(operator.is_, given, before)):  # the same objects: 0.0 equals -0.0
                values = [self._place.number(node, numbers) for node in self._tape.nodes]
            every.append(values)
            before = given
        self._tape.play(where, np.array(every, np.float64))
