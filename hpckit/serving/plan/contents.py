"""What the memory of a rank holds while a step is served: its cells, and numbers for all that can stand in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hpckit.serving.plan.places import Places
from hpckit.serving.plan.program import ARRAYS

PLAN, ROWS = 0, 1  # the first cells


class Contents:
    """Cells of a rank: the plan, its rows, the columns of the arrays that a replica shares, those of the logits of all
    replicas, and in each layer the blocks of the step. Contents are numbered as they are asked for; count: of cells.
    """

    def __init__(self, places: Places, layers: int, blocks: Iterable[int]) -> None:
        self._columns = places.columns
        self._blocks = {block: n for n, block in enumerate(sorted(set(blocks)))}
        self._first = self.column_cell("logits", places.replicas - 1, self._columns - 1) + 1
        self.count = self._first + layers * len(self._blocks)
        self._numbers: dict[tuple[Any, ...], int] = {}

    def column_cell(self, array: str, replica: int, column: int) -> int:
        """The cell of a column of an array; each replica has its own of the logits alone."""
        return 2 + (ARRAYS.index(array) + replica) * self._columns + column

    def block_cell(self, layer: int, block: int) -> int:
        """The cell of a block of keys and values of a layer of this rank's stage."""
        return self._first + layer * len(self._blocks) + self._blocks[block]

    def the_plan(self) -> int:
        """The plan of the step."""
        return self._index("the plan")

    def rows(self, stage: int, replica: int, number: int) -> int:
        """The rows of a replica after an action of a stage, -1 for those that came from the stage before."""
        return self._index("the rows", stage, replica, number)

    def columns(self, stage: int, replica: int, column: int, does: str, layer: int) -> int:
        """The columns that a rank writes in an action."""
        return self._index("columns", stage, replica, column, does, layer)

    def before(self, stage: int, layer: int, column: int, block: int, rank: int) -> int:
        """The keys and values that a rank finds in a block."""
        return self._index("keys and values before", stage, layer, column, block, rank)

    def after(self, stage: int, layer: int, column: int, block: int, text: int) -> int:
        """The keys and values of a block with the tokens of the step, which belong to a text."""
        return self._index("keys and values after", stage, layer, column, block, text)

    def _index(self, *key: Any) -> int:
        """The number of a content: the first one that asks for it gives it."""
        return self._numbers.setdefault(key, len(self._numbers))

    def index_name(self, index: int) -> str:
        """A content in words."""
        what, *where = list(self._numbers)[index]
        names = {
            "columns": "stage {}, replica {}, column {}: {} {}",
            "the rows": "stage {}, replica {}, after action {}",
            "keys and values before": "stage {}, layer {}, column {}, block {}",
            "keys and values after": "stage {}, layer {}, column {}, block {}, of text {}",
        }
        return f"{what} ({names[what].format(*where)})" if where else what

    def cell_name(self, rank: int, cell: int) -> str:
        """A cell in words, the same on all ranks."""
        if cell <= ROWS:
            return ("the plan", "its rows")[cell]
        if cell >= self._first:
            layer, number = divmod(cell - self._first, len(self._blocks))
            return f"block {list(self._blocks)[number]} of layer {layer}"
        array, column = divmod(cell - 2, self._columns)
        told = f" of replica {array - 3}" if array >= 3 else ""
        return f"column {column} of {ARRAYS[min(array, 3)]}{told}"
