"""The fixed parts of a batch: sums over them are added as one binary tree, on however many ranks the parts are.

A batch is cut into a power of two of parts, and sums over its samples are those of the parts, added in pairs, then
pairs of pairs. A replica computes a whole subtree, so what ranks exchange are nodes of one tree everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class PartialSum(NamedTuple):
    """The sum of 2^level parts, from part place * 2^level on."""

    level: int
    place: int

    @property
    def first(self) -> int:
        """Its first part."""
        return self.place << self.level

    @property
    def parts(self) -> int:
        """Its number of parts."""
        return 1 << self.level


def subtrees(parts: int, replicas: int) -> list[PartialSum]:
    """The node that each replica computes: where their number is a power of two all alike, else the first have more."""
    nodes = [PartialSum(parts.bit_length() - 1, 0)]
    while len(nodes) < replicas:
        most = max(node.level for node in nodes)
        at = max(number for number, node in enumerate(nodes) if node.level == most)
        level, index = nodes[at]
        nodes[at : at + 1] = [PartialSum(level - 1, 2 * index), PartialSum(level - 1, 2 * index + 1)]
    return nodes


def joined(done: list[tuple[PartialSum, T]], node: PartialSum, value: T, add: Callable[[T, T], T]) -> None:
    """Put the next node behind those that are done, and add up what has become whole: add(left, right)."""
    while done and node.place & 1 and done[-1][0] == (node.level, node.place - 1):
        value = add(done.pop()[1], value)
        node = PartialSum(node.level + 1, node.place >> 1)
    done.append((node, value))


def tree_sum(nodes: Sequence[PartialSum], values: Sequence[T], add: Callable[[T, T], T]) -> T:
    """The sum of the nodes of all replicas, in their order."""
    done: list[tuple[PartialSum, T]] = []
    for node, value in zip(nodes, values, strict=True):
        joined(done, node, value, add)
    ((_, total),) = done
    return total


def root(nodes: Sequence[PartialSum]) -> PartialSum | None:
    """The node that neighboring nodes add up to; None if that is no node of the tree."""
    done: list[tuple[PartialSum, None]] = []
    for node in nodes:
        joined(done, node, None, lambda left, right: None)
    return done[0][0] if len(done) == 1 else None


def group_fault(group: int, replicas: int, parts: int) -> tuple[str, str]:
    """What is wrong with shards over groups of replicas, and what would be right; empty if nothing is."""

    def fits(size: int) -> bool:
        nodes = subtrees(parts, replicas) if parts else []
        groups = [nodes[at : at + size] for at in range(0, len(nodes), size)]
        return replicas % size == 0 and all(root(each) for each in groups)

    if group < 0 or (group and replicas % group):
        what = f"groups of {group} do not divide {replicas} replicas"
    elif group and parts and parts >= replicas and not fits(group):
        what = f"groups of {group} of {replicas} replicas cannot add fixed parts as a tree"
    else:
        return "", ""
    return what, f"take {' or '.join(str(size) for size in range(1, replicas + 1) if fits(size))}, or 0 for all"


def fault(parts: int, ranks: int, setting: str = "parts", axis: str = "dp") -> str:
    """What is wrong with a number of parts, and what would be right; "" if nothing is."""
    if parts and (parts < 1 or parts & (parts - 1)):
        return f"{setting}={parts} is not a power of two: take 8, or 0 for none"
    if parts and parts < ranks:
        return f"{setting}={parts} is less than {axis}={ranks}: take {1 << (ranks - 1).bit_length()}, or 0"
    return ""
