"""Runs programs on the ranks of a mesh: fields with the halos that are needed, exchanges, sweeps, folds and sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hpckit.adjoint.program.place import Place, locations
from hpckit.adjoint.program.script import Script, ScriptTurn
from hpckit.adjoint.program.stages import MADE, REFLECTING, SweepProgram, named, walls_of
from hpckit.comm.device import HOST, Device
from hpckit.comm.mesh import Mesh
from hpckit.errors import InputError
from hpckit.grid.field import Field
from hpckit.kernels.graph import reference
from hpckit.kernels.graph.nodes import Faces, Node, Offset, faces_at
from hpckit.kernels.graph.region import Block
from hpckit.kernels.graph.sweep import GraphSweep
from hpckit.plan.grid.decomposition import Decomposition

DOUBLE = np.dtype(np.float64)
Turn = tuple[Mapping[Node, Any], Sequence[Field | None], Sequence[Field | None]]
"""Inputs, results, and for each result the field that it is added to, if any (or nothing for all)."""


class BoundProgram:
    """A program on a mesh, for fields of one shape; keeps its exchanges and the fields between its stages.

    Collective. shape: of the grid's cells, members behind them if there are any.
    """

    def __init__(
        self, program: SweepProgram, mesh: Mesh, shape: tuple[int, ...], device: Device = HOST, bindings: int = 8
    ) -> None:
        self.program, self.grid, self.device = program, program.graph.grid, device
        whole = Decomposition(shape, mesh.topology, 0)
        _require_room(program, whole)
        self._fits = program.fits(whole)
        self._place = Place(program, mesh, shape, device, bindings)
        self._scripts: dict[Any, Script] = {}
        # The same output twice is computed once.
        outputs = program.graph.outputs
        self._first = [outputs.index(node) for node in outputs]

    def zeros(self, node: Node | None = None, halo: Offset = (), faces: Faces | None = None) -> Field:
        """A field with at least the given halo and the halo that an array of the program needs; see `Place.zeros`."""
        return self._place.zeros(node, halo, faces)

    def set_walls(self, node: Node, field: Field) -> None:
        """Set what an input's boundary conditions write on the walls, as a run does."""
        self._place.set_walls(node, field)

    def run(
        self,
        inputs: Mapping[Node, Any],
        outs: Sequence[Field | None],
        filled: Sequence[Node] = (),
        seen: dict[Node, Any] | None = None,
        added: Sequence[Field | None] = (),
    ) -> list[Any]:
        """The program's results: fields, written to `outs` where given, and numbers.

        inputs: a Field for a field, a float for a number; new fields get the halo of the first. filled: inputs whose
        halos hold what they must already. seen: receives the arrays and numbers on the way. added: fields that results
        are added to.
        """
        outputs = self.program.graph.outputs
        like = next(field for field in inputs.values() if isinstance(field, Field)).decomposition.halo
        found: list[Any] = list(outs)
        for k, node in enumerate(outputs):
            if not node.is_field:
                found[k] = None
            elif outs[k] is None:
                where = self.program.graph.faces[k]
                found[k] = self.zeros(node if self._fits and node.op in MADE else None, like[: self.grid.dims], where)
        script, given = self._bound(inputs, found, filled, added, seen is not None)
        numbers = script.run(given, {node: value for node, value in inputs.items() if not isinstance(value, Field)})
        if seen is not None:
            seen.update({node: script.field(slot, given) for node, slot in script.values.items()})
            seen.update(numbers)
        for k, node in enumerate(outputs):
            if not node.is_field:
                found[k] = self.number(self._place.number(node, numbers))
                if self._place.members and any(arg.op == "network" for arg in node.args):  # weights without a slope
                    found[k] = np.zeros((*self._place.members, found[k].size))
        return found

    def number(self, value: Any) -> Any:
        """A result that is a number: a float; or the vector of weights; of an ensemble one for each member."""
        if np.ndim(value):
            return np.array(value)
        return np.full(self._place.members, float(value)) if self._place.members else float(value)

    def script(self, inputs: Mapping[Node, Any], outs: Sequence[Field]) -> Script:
        """That of a run with these, all results fields."""
        return self._bound(inputs, outs, (), ())[0]

    def run_all(self, turns: Sequence[Turn], filled: Sequence[Node] = ()) -> None:
        """Run it for one set of inputs and results after the other: where nothing but compiled work is between them, in
        one call. All results are fields.
        """
        waiting: list[ScriptTurn] = []
        before: Script | None = None
        for inputs, outs, added in turns:
            script, given = self._bound(inputs, outs, filled, added)
            if before is not None and (script is not before or not script.is_one_tape):
                before.run_all(waiting)
                waiting = []
            before = script
            waiting.append((given, {node: value for node, value in inputs.items() if not isinstance(value, Field)}))
        if before is not None:
            before.run_all(waiting)

    def _bound(
        self,
        inputs: Mapping[Node, Any],
        outs: Sequence[Field | None],
        filled: Sequence[Node],
        added: Sequence[Field | None],
        apart: bool = False,
    ) -> tuple[Script, list[Field]]:
        """The script for fields like these, and the fields in its order."""
        given = [each for each in inputs.values() if isinstance(each, Field)]
        given += [each for each in (*outs, *added) if each is not None]
        halos = tuple([field.decomposition.halo for field in given])
        same = [id(field.data) for field in given]
        twice = None if len(set(same)) == len(same) else tuple([same.index(each) for each in same])
        own = tuple([node for node, value in inputs.items() if type(value) is np.ndarray and node.op == "number"])
        if own:
            self._require_members({node: inputs[node] for node in own})
        key = (
            halos,
            twice,
            tuple([each is not None for each in added]),
            filled,
            own,
            apart,
            self._place.mesh.observer.on,
        )
        script = self._scripts.get(key)
        if script is None:
            script = self._scripts[key] = Script(self._place, inputs, outs, filled, added, self._first, apart)
        return script, given

    def _require_members(self, numbers: Mapping[Node, np.ndarray]) -> None:
        """`InputError` for arrays in place of numbers that are not one for each member of an ensemble."""
        members = self._place.members
        for node, given in numbers.items():
            if given.shape not in ((), members):
                allowed = f"one number, or one for each of {members[0]} members" if members else "one number"
                raise InputError(
                    f"{named(node)} of {self.program.graph.name} is an array of shape {given.shape}",
                    do=f"give {allowed}",
                )

    def sweep_by_reference(self, sweep: GraphSweep, out: Field, values: dict[Node, Any]) -> None:
        """One target of a pass on the owned cells, by NumPy: from what a run has `seen`."""
        ins = [
            Block(field.device.to_host(field.data), field.decomposition.halo[: self.grid.dims])
            for field in (values[leaf] for leaf in sweep.leaves)
        ]
        made = np.zeros(out.interior.shape)
        whole = (0,) * self.grid.dims
        numbers = [self._place.number(node, values) for node in sweep.numbers]
        reference.bind(sweep, [Block(made, whole)], ins, (whole, made.shape[: self.grid.dims]))(numbers)
        out.set_from_host(made)


def _require_room(program: SweepProgram, whole: Decomposition) -> None:
    """`InputError` if boundary conditions mirror more layers than the grid has."""
    closing = program.graph.grid.closing
    for node, halo in program.halo.items():
        for dim, pair in enumerate(node.value[0] if node.op == "fold" else walls_of(node)):
            needed = halo[dim] - program.near[dim] + faces_at(node)[dim]
            points = whole.shape[dim] + closing(faces_at(node))[dim]
            if needed > points and any(fill in REFLECTING for fill in pair or ()):
                raise InputError(
                    f"{program.graph.name} reads {named(node)} up to {needed} points beyond a wall of axis "
                    f"{program.graph.axes[dim]} that mirrors the {points} points of the grid",
                    where=node.line,
                    do=f"take a grid of {needed} points or more, or hold a value on the way: T[+1, 0].hold()",
                )


def require_same_grid(fields: Sequence[Field], name: str) -> Field:
    """The first of the fields; `InputError` if they are not of one grid, of float64, one value a cell."""
    first = fields[0]
    mesh, shape = first.mesh, first.decomposition.shape
    for field in fields:  # before every step: no more than it must be
        dec, data = field.decomposition, field.data
        if field.mesh is not mesh or dec.shape != shape:
            raise InputError(
                f"the fields of {name} live on different grids: {first} and {field}", do="give fields of one grid"
            )
        if data.dtype != DOUBLE or data.ndim != len(shape):
            raise InputError(f"{name} takes fields of float64 with one value a cell, not {field}")
    return first


def faces_of(field: Field, dims: int) -> Faces:
    """Where a field's values stand, in the dims of the grid."""
    return tuple([place == "face" for place in field.decomposition.location[:dims]])


def require_places(fields: Sequence[Field | None], faces: Sequence[Faces], name: str) -> None:
    """`InputError` unless fields stand where they should."""
    for number, (field, place) in enumerate(zip(fields, faces, strict=True)):
        if field is not None and faces_of(field, len(place)) != place:
            raise InputError(
                f"{name} number {number} stands at {'/'.join(locations(place))}, the field given for it at "
                f"{'/'.join(field.decomposition.location[: len(place)])}",
                do="give one with decomposition.at(…), or say where the value stands, by value.at(…)",
            )
