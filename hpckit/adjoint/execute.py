"""Runs programs on the ranks of a mesh: fields with the halos that are needed, exchanges, sweeps, folds and sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hpckit.adjoint.networks import run_network
from hpckit.adjoint.program import MADE, SweepPass, SweepProgram, walls_of
from hpckit.adjoint.transforms import ADDED_UP
from hpckit.comm.device import HOST, Device
from hpckit.comm.mesh import Mesh
from hpckit.errors import InputError
from hpckit.grid import sums
from hpckit.grid.exchange import HaloExchange
from hpckit.grid.field import Field
from hpckit.kernels.graph import dispatch, reference
from hpckit.kernels.graph.nodes import POINTWISE, Node, Offset, Walls, make
from hpckit.kernels.graph.reference import number
from hpckit.kernels.graph.region import Block, Box
from hpckit.kernels.graph.sweep import GraphSweep
from hpckit.plan.grid.decomposition import Decomposition

MEMBER = "member"
"""The axis of an ensemble's members, always whole, behind the axes of the grid."""


class BoundProgram:
    """A program on a mesh, for fields of one shape; keeps its exchanges and the fields between its stages.

    Collective. shape: of the grid's cells, members behind them if there are any.
    """

    def __init__(
        self, program: SweepProgram, mesh: Mesh, shape: tuple[int, ...], device: Device = HOST, bindings: int = 8
    ) -> None:
        self.program, self.mesh, self.shape, self.device = program, mesh, shape, device
        self.grid = program.graph.grid
        self._bindings = bindings
        self._more = len(shape) - self.grid.dims  # dims behind the grid's
        if program.networks and device is not HOST:
            raise InputError(
                f"{program.graph.name} has a network within: it runs on processors", do="take device='cpu'"
            )
        backward = any(node.op == "pull" for node in program.networks)
        if self._more and (backward or any(node.op == "sum" for node in program.made)):
            raise InputError(
                f"{program.graph.name} of an ensemble adds up cells, and would add its members, too",
                do="run it for each member: ensemble.member(field, m)",
            )
        self._exchanges: dict[tuple, HaloExchange] = {}
        self._scratch: dict[Any, Field] = {}
        whole = self.decomposition((0,) * self.grid.dims)
        self.owned = whole.owned(mesh.rank)[: self.grid.dims]
        self._cells = int(np.prod(whole.owned(mesh.rank))), int(np.prod(shape))
        names = mesh.topology.names
        self._sides = tuple(
            tuple(walled and mesh.topology.shift(mesh.rank, names[dim], step) is None for step in (-1, 1))
            for dim, walled in enumerate(self.grid.walled)
        )

    def decomposition(self, halo: Offset) -> Decomposition:
        """That of fields with a halo."""
        return Decomposition(self.shape, self.mesh.topology, (*halo, *(0,) * self._more))

    def zeros(self, node: Node | None = None, halo: Offset = ()) -> Field:
        """A field with at least the given halo and the halo that an array of the program needs."""
        wide = halo or (0,) * self.grid.dims
        if node in self.program.halo:
            wide = tuple(map(max, wide, self.program.halo[node]))
        return Field.zeros(self.mesh, self.decomposition(wide), device=self.device)

    def fits(self, node: Node, field: Field) -> bool:
        """Whether a field's halo is wide enough to be used in place."""
        return all(a >= b for a, b in zip(field.decomposition.halo, self.program.halo[node], strict=False))

    def run(
        self,
        inputs: Mapping[Node, Any],
        outs: Sequence[Field | None],
        filled: Sequence[Node] = (),
        seen: dict[Node, Any] | None = None,
    ) -> list[Any]:
        """The program's results: fields, written to `outs` where given, and numbers.

        inputs: a Field for a field, a float for a number; new fields get the halo of the first. filled: inputs whose
        halos hold what they must already. seen: receives the arrays and numbers on the way.
        """
        program = self.program
        values: dict[Node, Any] = {} if seen is None else seen
        values.update(inputs)
        for node, field in inputs.items():
            if node in program.halo and not self.fits(node, field):
                wide = self._kept(("copy", node), node)
                wide.interior[...] = field.interior
                values[node] = wide
        results: dict[Node, Any] = {}
        like = next(field for field in inputs.values() if isinstance(field, Field)).decomposition.halo[: self.grid.dims]
        for node, out in zip(program.graph.outputs, outs, strict=True):
            if node in results or not node.is_field:
                continue
            if out is None:
                results[node] = self.zeros(node if node.op in MADE else None, like)
            elif node.op in MADE and not self.fits(node, out):
                results[node] = self._kept(("result", node), node)
            else:
                results[node] = out
        for node in program.direct:
            values[node] = results[node]
        for turn, stage in enumerate(program.stages):
            self._exchange([(node, values[node]) for node in stage.exchanged if node not in filled])
            for each, made in zip(stage.passes, program.targets(turn), strict=True):
                self._sweep(each, made, values, results)
            for node in stage.networks:
                self._through(node, values)
        found: list[Any] = []
        for node, out in zip(program.graph.outputs, outs, strict=True):
            if not node.is_field:
                value = self._number(node, values)
                found.append(np.array(value) if np.ndim(value) else float(value))
                continue
            result = results[node]
            if out is not None and result is not out:
                out.interior[...] = result.interior
            found.append(result if out is None else out)
        return found

    def _sweep(
        self, each: SweepPass, made: Sequence[Node], values: dict[Node, Any], results: Mapping[Node, Any]
    ) -> None:
        targets: list[Field] = []
        for node in made:
            if node.op in MADE:
                field = values.get(node)
                if field is None:
                    field = values[node] = self._kept(node, node)
            elif node.op == "sum":
                field = self._kept(("sum", len(targets)), None)
            else:
                field = results[node]
            targets.append(field)
        outs = [self._block(field) for field in targets]
        ins = [self._block(values[leaf]) for leaf in each.sweep.leaves]
        numbers = [self._number(node, values) for node in each.sweep.numbers]
        dispatch.bind(each.sweep, outs, ins, self._box(each.depth))(numbers)
        for node, field in zip(made, targets, strict=True):
            if node.op == "fold":
                _fold(field.data, self._block(field).origin, self.owned, node.value, self._sides)
            elif node.op == "sum":
                values[node] = sums.total(field.interior, self.mesh.comm, self._cells, True)

    def _through(self, node: Node, values: dict[Node, Any]) -> None:
        """A network forward or backward: its outputs, and the sensitivities to its weights."""
        box = (0,) * self.grid.dims, self.owned
        args: list[Any] = []
        for arg in node.args:
            leaf, offset = (arg.args[0], arg.value) if arg.op == "shift" else (arg, ())
            args.append(self._block(values[leaf]).part(box, offset) if arg.is_field else self._number(arg, values))
        outs = {}
        for each in self.program.arrays:
            if each.op == "output" and each.args[0] is node:
                values[each] = field = self._kept(each, each)
                outs[each.value[0]] = field.interior
        asked = make("weights", node)
        comm = self.mesh.comm if asked in self.program.made else None
        found = run_network(node, args[0], args[1:], outs, comm, self._cells[1])
        if found is not None:
            values[asked] = found

    def sweep_by_reference(self, sweep: GraphSweep, out: Field, values: dict[Node, Any]) -> None:
        """One target of a pass on the owned cells, by NumPy: from what a run has `seen`."""
        ins = [
            Block(field.device.to_host(field.data), field.decomposition.halo[: self.grid.dims])
            for field in (values[leaf] for leaf in sweep.leaves)
        ]
        made = np.zeros(out.interior.shape)
        whole = (0,) * self.grid.dims
        numbers = [self._number(node, values) for node in sweep.numbers]
        reference.bind(sweep, [Block(made, whole)], ins, (whole, self.owned))(numbers)
        out.set_from_host(made)

    def _number(self, node: Node, values: dict[Node, Any]) -> float:
        """A number from numbers, as NumPy computes it."""
        if node.op == "constant":
            return node.value
        if node not in values:
            if node.op not in POINTWISE:
                raise InputError(f"{node!r} is not a number yet")
            values[node] = number(node, [self._number(arg, values) for arg in node.args])
        return values[node]

    def _block(self, field: Field) -> Block:
        return Block(field.data, field.decomposition.halo[: self.grid.dims])

    def _box(self, depth: Offset) -> Box:
        first = tuple(-d if side[0] else 0 for d, side in zip(depth, self._sides, strict=True))
        stop = tuple(n + (d if side[1] else 0) for n, d, side in zip(self.owned, depth, self._sides, strict=True))
        return first, stop

    def _kept(self, key: Any, node: Node | None) -> Field:
        if key not in self._scratch:
            self._scratch[key] = self.zeros(node)
        return self._scratch[key]

    def _exchange(self, pairs: Sequence[tuple[Node, Field]]) -> None:
        """Fill the halos of some arrays, all in the same messages."""
        if not pairs:
            return
        kinds = tuple((field.decomposition.halo, walls_of(node)) for node, field in pairs)
        if kinds not in self._exchanges:
            walls = [self._named_walls(walls_of(node)) for node, _ in pairs]
            fields = [field for _, field in pairs]
            self._exchanges[kinds] = HaloExchange(self.mesh, fields, walls, bindings=self._bindings)
        self._exchanges[kinds]([field for _, field in pairs])

    def _named_walls(self, walls: Walls) -> dict[str, tuple]:
        names = self.program.graph.axes
        return {names[dim]: pair for dim, pair in enumerate(walls) if pair and any(fill is not None for fill in pair)}


def _fold(array: Any, origin: Offset, owned: Offset, value: tuple, sides: Sequence[Sequence[bool]]) -> None:
    """Add what lies beyond the walls to the cells that the fill had copied there; last dim first, low side first."""
    walls, depth = value
    for dim in reversed(range(len(owned))):
        if not depth[dim]:
            continue
        layers = array.swapaxes(0, dim)
        first, end = origin[dim], origin[dim] + owned[dim]
        for side, fill in enumerate(walls[dim]):
            if not sides[dim][side] or fill is None or isinstance(fill, float):
                continue
            for k in range(depth[dim]):
                beyond = layers[end + k] if side else layers[first - 1 - k]
                at = 0 if fill in ("zero_gradient", ADDED_UP) else k
                inside = layers[end - 1 - at] if side else layers[first + at]
                if fill == "antisymmetric":
                    inside -= beyond
                else:
                    inside += beyond


def require_same_grid(fields: Sequence[Field], name: str) -> Field:
    """The first of the fields; `InputError` if they are not of one grid, of float64, one value a cell."""
    first = fields[0]
    for field in fields:
        dec = field.decomposition
        if field.mesh is not first.mesh or dec.shape != first.decomposition.shape:
            raise InputError(
                f"the fields of {name} live on different grids: {first} and {field}", do="give fields of one grid"
            )
        if field.data.dtype != np.float64 or field.components:
            raise InputError(f"{name} takes fields of float64 with one value a cell, not {field}")
        if any("face" in place and not closed for place, closed in zip(dec.location, dec.periodic, strict=True)):
            raise InputError(
                f"{field} has values on faces between walls, which a traced step cannot take yet",
                do="make that axis periodic, or put the values in the centers of cells",
            )
    return first
