"""Where a program runs: a rank's part of the grid, its walls, its exchanges, and the fields between stages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hpckit.adjoint.program.stages import SweepPass, SweepProgram, walls_of
from hpckit.comm.device import Device
from hpckit.comm.mesh import Mesh
from hpckit.errors import InputError
from hpckit.grid.boundary_conditions import Fill
from hpckit.grid.exchange import HaloExchange
from hpckit.grid.field import Field
from hpckit.kernels.graph.nodes import (
    ARRAYS,
    OUTSIDE,
    POINTWISE,
    Faces,
    Node,
    Offset,
    Walls,
    faces_at,
    ordered,
    sets_wall,
)
from hpckit.kernels.graph.reference import number
from hpckit.kernels.graph.region import Block, Box
from hpckit.plan.grid.decomposition import Decomposition

MEMBER = "member"
"""The axis of an ensemble's members, always whole, behind the axes of the grid."""
Numbers = dict[Node, Any]


def _zero_beyond(halo: Any, inside: Any, on_face: bool) -> None:
    halo[...] = 0.0


OUTSIDE_FILL = Fill("zero beyond the wall", _zero_beyond)


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
        self.in_ensemble = self._more > 0
        self.members = shape[self.grid.dims :]
        self._exchanges: dict[tuple, HaloExchange] = {}
        self._scratch: dict[Any, Field] = {}
        whole = Decomposition(shape, mesh.topology, 0)
        self._thinnest = whole.thinnest()
        blocks = zip(shape, whole.start(mesh.rank), whole.owned(mesh.rank), self.grid.walled, strict=False)
        self._away = [(first, n - first - owned) if walled else (n, n) for n, first, owned, walled in blocks]
        self.sides = tuple((not low, not high) for low, high in self._away)

    def decomposition(self, faces: Faces, halo: Offset = ()) -> Decomposition:
        """That of fields that stand somewhere, with a halo."""
        widths = (*(halo or (0,) * self.grid.dims), *(0,) * self._more)
        places = (*locations(faces), *("center",) * self._more)
        # A wall that mirrors faces needs one more of them.
        needed = [wide and wide + (place == "face") for wide, place in zip(widths, places, strict=True)]
        deep = any(wide > n for wide, n in zip(needed, self._thinnest, strict=True))
        return Decomposition(self._shape, self.mesh.topology, widths, places, deep)

    def near(self, dim: int, high: int) -> int | None:
        """How many cells there are between the rank's and a wall, if it computes what is beyond that; else None."""
        away = self._away[dim][high]
        return away if self.grid.walled[dim] and away <= self.program.near[dim] else None

    def owned(self, faces: Faces = ()) -> Offset:
        """The rank's share of the points where values stand; of cells by default."""
        return self.decomposition(faces or self.grid.centers).owned(self.mesh.rank)[: self.grid.dims]

    def counts(self, faces: Faces) -> tuple[int, int]:
        """How many values this rank has of those that stand somewhere, and all ranks."""
        where = self.decomposition(faces)
        return math.prod(where.owned(self.mesh.rank)), math.prod(where.global_shape)

    def zeros(self, node: Node | None = None, halo: Offset = (), faces: Faces | None = None) -> Field:
        """A field with at least the given halo and that which an array of the program needs, where it stands; else at
        the given place, in centers by default.
        """
        if faces is None:
            faces = faces_at(node) if node is not None and node.op in (*ARRAYS, "sum") else self.grid.centers
        wide = halo or (0,) * self.grid.dims
        if node in self.program.halo:
            wide = tuple(map(max, wide, self.program.halo[node]))
        return Field.zeros(self.mesh, self.decomposition(faces, wide), device=self.device)

    def set_walls(self, node: Node, field: Field) -> None:
        """Set what boundary conditions of an array write on the walls themselves, in a field given for it."""
        for dim, fills in enumerate(walls_of(node)):
            for high, fill in enumerate(fills or ()):
                if faces_at(node)[dim] and sets_wall(fill) and self.sides[dim][high]:
                    field.interior.swapaxes(0, dim)[-high] = wall_value(fill)

    def fits(self, node: Node, field: Field) -> bool:
        """Whether a field's halo is wide enough to be used in place, and its blocks are as thick as walls need them."""
        dec = field.decomposition
        thick = dec.deep or not self.decomposition(faces_at(node), dec.halo[: self.grid.dims]).deep
        return thick and all(a >= b for a, b in zip(dec.halo, self.program.halo[node], strict=False))

    def kept(self, key: Any, node: Node | None) -> Field:
        """A field between stages."""
        if key not in self._scratch:
            self._scratch[key] = self.zeros(node)
        return self._scratch[key]

    def box(self, each: SweepPass) -> Box:
        """Where a pass works on this rank."""
        first, stop = [], []
        for dim, (n, depth) in enumerate(zip(self.owned(), each.depth, strict=True)):
            below, above = (self.near(dim, high) if depth or not self._away[dim][high] else None for high in (0, 1))
            end = n + (0 if above is None else above + depth)
            extra = [0 if above is None or not it else it[dim] for it in (each.more, each.most)]
            more, most = end + extra[0], end + extra[1]
            first.append(most if dim == each.layer else 0 if below is None else -depth - below)
            stop.append(most if each.layer is not None and dim > each.layer else more)
        return tuple(first), tuple(stop)

    def block(self, field: Field) -> Block:
        """The array of a field, with the place of its first owned cell."""
        return Block(field.data, field.decomposition.halo[: self.grid.dims])

    def own_numbers(self, inputs: Mapping[Node, Any]) -> set[Node]:
        """The numbers that each member of an ensemble has of its own: sums, those given as arrays, and what is made of
        them.
        """
        found: set[Node] = set()
        if self.in_ensemble:
            for node in ordered(self.program.graph.outputs):
                given = node.op == "sum" or (node.op == "number" and np.ndim(inputs[node]))
                if given or (not node.is_field and node.op in POINTWISE and not found.isdisjoint(node.args)):
                    found.add(node)
        return found

    def number(self, node: Node, values: Numbers) -> Any:
        """A number from numbers, as NumPy computes it; float64[members] where each member has its own."""
        if node.op == "constant":
            return node.value
        if node not in values:
            if node.op not in POINTWISE:
                raise InputError(f"{node!r} is not a number yet")
            values[node] = number(node, [self.number(arg, values) for arg in node.args])
        return values[node]

    def exchange(self, nodes: Sequence[Node], fields: Sequence[Field]) -> HaloExchange:
        """The exchange that fills the halos of some arrays, all in the same messages. Collective when it is new."""
        kinds = tuple(
            (field.decomposition.halo, field.decomposition.location, walls_of(node))
            for node, field in zip(nodes, fields, strict=True)
        )
        if kinds not in self._exchanges:
            walls = [self._named_walls(walls_of(node)) for node in nodes]
            self._exchanges[kinds] = HaloExchange(self.mesh, fields, walls, bindings=self._bindings)
        return self._exchanges[kinds]

    def _named_walls(self, walls: Walls) -> dict[str, tuple]:
        names = self.program.graph.axes
        return {
            names[dim]: tuple(OUTSIDE_FILL if fill == OUTSIDE else fill for fill in pair)
            for dim, pair in enumerate(walls)
            if pair and any(fill is not None for fill in pair)
        }


def wall_value(fill: Any) -> float:
    """What a fill writes on a wall."""
    return 0.0 if isinstance(fill, str) else fill


def locations(faces: Faces) -> tuple[str, ...]:
    """Where values stand, as decompositions say it."""
    return tuple("face" if face else "center" for face in faces)
