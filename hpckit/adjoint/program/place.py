"""Where a program runs: a rank's part of the grid, its walls, its exchanges, and the fields between stages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hpckit.adjoint.program.stages import SweepProgram, walls_of
from hpckit.comm.device import Device
from hpckit.comm.mesh import Mesh
from hpckit.errors import InputError
from hpckit.grid.exchange import HaloExchange
from hpckit.grid.field import Field
from hpckit.kernels.graph.nodes import POINTWISE, Node, Offset, Walls
from hpckit.kernels.graph.reference import number
from hpckit.kernels.graph.region import Block, Box
from hpckit.plan.grid.decomposition import Decomposition

MEMBER = "member"
"""The axis of an ensemble's members, always whole, behind the axes of the grid."""
Numbers = dict[Node, Any]


class Place:
    """Where a program runs: a rank's part of the grid, its walls, and what all scripts share: exchanges, and the fields
    between stages.
    """

    def __init__(
        self, program: SweepProgram, mesh: Mesh, shape: tuple[int, ...], device: Device, bindings: int
    ) -> None:
        self.program, self.mesh, self.device = program, mesh, device
        self.grid = program.graph.grid
        self._shape, self._bindings = shape, bindings
        self._more = len(shape) - self.grid.dims  # dims behind the grid's
        self._exchanges: dict[tuple, HaloExchange] = {}
        self._scratch: dict[Any, Field] = {}
        whole = self.decomposition((0,) * self.grid.dims)
        self.owned = whole.owned(mesh.rank)[: self.grid.dims]
        self.cells = int(np.prod(whole.owned(mesh.rank))), int(np.prod(shape))
        names = mesh.topology.names
        self.sides = tuple(
            tuple(walled and mesh.topology.shift(mesh.rank, names[dim], step) is None for step in (-1, 1))
            for dim, walled in enumerate(self.grid.walled)
        )

    def decomposition(self, halo: Offset) -> Decomposition:
        """That of fields with a halo."""
        return Decomposition(self._shape, self.mesh.topology, (*halo, *(0,) * self._more))

    def zeros(self, node: Node | None = None, halo: Offset = ()) -> Field:
        """A field with at least the given halo and the halo that an array of the program needs."""
        wide = halo or (0,) * self.grid.dims
        if node in self.program.halo:
            wide = tuple(map(max, wide, self.program.halo[node]))
        return Field.zeros(self.mesh, self.decomposition(wide), device=self.device)

    def fits(self, node: Node, field: Field) -> bool:
        """Whether a field's halo is wide enough to be used in place."""
        return all(a >= b for a, b in zip(field.decomposition.halo, self.program.halo[node], strict=False))

    def kept(self, key: Any, node: Node | None) -> Field:
        """A field between stages."""
        if key not in self._scratch:
            self._scratch[key] = self.zeros(node)
        return self._scratch[key]

    def box(self, depth: Offset) -> Box:
        """The owned cells, and so many beyond the walls that this rank has."""
        first = tuple(-d if side[0] else 0 for d, side in zip(depth, self.sides, strict=True))
        stop = tuple(n + (d if side[1] else 0) for n, d, side in zip(self.owned, depth, self.sides, strict=True))
        return first, stop

    def block(self, field: Field) -> Block:
        """The array of a field, with the place of its first owned cell."""
        return Block(field.data, field.decomposition.halo[: self.grid.dims])

    def number(self, node: Node, values: Numbers) -> Any:
        """A number from numbers, as NumPy computes it."""
        if node.op == "constant":
            return node.value
        if node not in values:
            if node.op not in POINTWISE:
                raise InputError(f"{node!r} is not a number yet")
            values[node] = number(node, [self.number(arg, values) for arg in node.args])
        return values[node]

    def exchange(self, nodes: Sequence[Node], fields: Sequence[Field]) -> HaloExchange:
        """The exchange that fills the halos of some arrays, all in the same messages. Collective when it is new."""
        kinds = tuple((field.decomposition.halo, walls_of(node)) for node, field in zip(nodes, fields, strict=True))
        if kinds not in self._exchanges:
            walls = [self._named_walls(walls_of(node)) for node in nodes]
            self._exchanges[kinds] = HaloExchange(self.mesh, fields, walls, bindings=self._bindings)
        return self._exchanges[kinds]

    def _named_walls(self, walls: Walls) -> dict[str, tuple]:
        names = self.program.graph.axes
        return {names[dim]: pair for dim, pair in enumerate(walls) if pair and any(fill is not None for fill in pair)}
