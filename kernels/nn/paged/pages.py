"""The memory of keys and values in blocks of tokens, as the tile reads panels.

A block holds PAGE tokens of one text. Its keys are panels [PAGE / w, d, w]: the scores of a query are a product with
them; its values are panels [ceil(d / w), PAGE, w]: the result is the product of the weights with them, added in the
order of tokens. w is the width of the tile's panels on this processor, or any other that divides PAGE.

Each head of keys and values (a *group*, with the heads of queries that attend to it) has blocks of its own, so ranks
hold the groups that they compute: keys [groups, blocks, PAGE / w, d, w], values [groups, blocks, ceil(d / w), PAGE, w].
"""

from __future__ import annotations

PAGE = 32  # tokens of a block: one or two panels of every processor
LANES = 16  # sums of a softmax, added in the order of their numbers at its end


def page_shapes(groups: int, blocks: int, width: int, panel: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes of keys and of values; width: numbers of a head, panel: columns of a panel."""
    return (groups, blocks, PAGE // panel, width, panel), (groups, blocks, -(-width // panel), PAGE, panel)
