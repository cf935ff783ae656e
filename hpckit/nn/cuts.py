"""Which part of each parameter a rank of a tensor-parallel group holds; made and checked without MPI.

Shoeybi et al., "Megatron-LM", 2019: of two linear maps in a row the first is cut by its columns and the second by its
rows, so that between them no message is needed; attention is cut by its heads, embeddings and heads by the vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from hpckit.errors import InputError
from hpckit.nn.dropout import Dropout
from hpckit.nn.embedding import Embedding, Unembedding
from hpckit.nn.feedforward import Experts, FeedForward, GatedFeedForward
from hpckit.nn.layer import Sequential
from hpckit.nn.linear import Linear
from hpckit.nn.norms import LayerNorm, RMSNorm
from hpckit.nn.parameters import PART, Cut, Parameter
from hpckit.nn.transformer.attention import Attention
from hpckit.nn.transformer.block import Recompute, Residual
from hpckit.plan.blocks import block, block_starts
from hpckit.plan.pipeline.parts import subtrees


def parts_of(layer: Any) -> Iterator[Any]:
    """A layer's parts down to those that hold parameters or draw numbers, in their order."""
    inner: list[Any] = []
    if isinstance(layer, Sequential):
        inner = layer.layers
    elif isinstance(layer, Recompute):
        inner = [layer.layer]
    elif isinstance(layer, Residual):
        inner = [layer.norm, layer.branch, *([layer.dropout] if layer.dropout else [])]
    if not inner:
        yield layer
    for part in inner:
        yield from parts_of(part)


def misfits(model: Sequential, ranks: int, setting: str = "tp") -> list[str]:
    """What keeps a model from being cut into so many parts, with what would fit; an empty list if nothing does.

    setting: the name of their number.
    """
    if ranks == 1:
        return []
    whole: dict[str, int] = {}
    strange = set()
    for part in parts_of(model):
        if isinstance(part, Attention):
            whole["heads"], whole["heads of keys and values"] = part.heads, part.kv_heads
        elif isinstance(part, FeedForward | GatedFeedForward):
            whole["numbers inside an MLP"] = part.up.weight.shape[1]
        elif isinstance(part, Experts) and setting == "batch.layer_parts":
            strange.add("experts")
        elif not isinstance(part, Experts | Embedding | Unembedding | Dropout | LayerNorm | RMSNorm):
            strange.add(type(part).__name__)
    if strange or not whole:
        held = ", ".join(sorted(strange)) or "no block"
        return [f"{setting}={ranks} is for transformers, and this model has {held}: take {setting}=1"]
    wrong = [f"{count} {what}" for what, count in whole.items() if count % ranks]
    if not wrong:
        return []
    common = math.gcd(*whole.values())
    fitting = [n for n in range(1, common + 1) if not common % n]
    near = " or ".join(map(str, fitting))
    return [f"{' and '.join(wrong)} do not divide by {setting}={ranks}: take {setting}={near}"]


def cuts(model: Sequential, ranks: int) -> dict[str, Cut]:
    """The cut of each parameter that so many ranks hold in parts, by name; they hold the others whole.

    Raises `InputError` for a model that does not divide.
    """
    if wrong := misfits(model, ranks):
        raise InputError("; ".join(wrong))
    found: dict[str, Cut] = {}

    def cut(parameter: Parameter | None, dim: int, counts: list[int], each: int = 1) -> None:
        """Cut each of several groups of columns or rows, of counts[i] * each, for all ranks."""
        if parameter is None:
            return
        starts = np.cumsum([0, *counts]).tolist()
        found[parameter.name] = Cut(
            parameter.shape,
            dim,
            tuple(
                tuple(
                    (each * (start + first), each * (start + first + size))
                    for start, count in zip(starts, counts, strict=False)
                    for first, size in [block(count, ranks, rank)]
                )
                for rank in range(ranks)
            ),
        )

    def columns(linear: Linear, counts: list[int], each: int = 1) -> None:
        cut(linear.weight, 1, counts, each)
        cut(linear.bias, 0, counts, each)

    for part in parts_of(model):
        if isinstance(part, Embedding):
            cut(part.token, 0, [part.token.shape[0]])
        elif isinstance(part, Unembedding):
            cut(part.weight, 0, [part.weight.shape[0]])
        elif isinstance(part, Attention):
            columns(part.qkv, [part.heads, part.kv_heads, part.kv_heads], part.head_width)
            cut(part.out.weight, 0, [part.heads], part.head_width)
        elif isinstance(part, FeedForward | GatedFeedForward):
            for linear in (part.up, part.gate) if isinstance(part, GatedFeedForward) else (part.up,):
                columns(linear, [linear.weight.shape[1]])
            cut(part.down.weight, 0, [part.down.weight.shape[0]])
    return found


def expert_cut(parameter: Parameter, ranks: int, columns: int = 1) -> Cut | None:
    """The experts of each of so many ranks, as evenly as they can be dealt, and of these the hidden numbers of each of
    so many ranks in a row; None where there is one rank.
    """
    if ranks * columns == 1:
        return None
    starts = block_starts(parameter.experts, ranks).tolist()
    ranges = tuple(((first, end),) for first, end in pairwise(starts))
    return Cut(parameter.shape, 0, ranges, (parameter.hidden, columns))


def expert_misfits(model: Sequential, ep: int, etp: int = 1) -> list[str]:
    """What keeps a model's experts from being dealt to so many ranks, each of them cut for etp, with what would fit."""
    mixtures, found = [part for part in parts_of(model) if isinstance(part, Experts)], []
    counts, hidden = [part.experts for part in mixtures], [part.gate.shape[2] for part in mixtures]
    for name, size in (("ep", ep), ("etp", etp)):
        if size > 1 and not mixtures:
            found.append(f"{name}={size} is for experts, and this model has none: take {name}=1, or model.experts")
    if mixtures and ep > min(counts):
        found.append(f"ep={ep} ranks for {min(counts)} experts: take ep=1 to {min(counts)}")
    if mixtures and any(each % etp for each in hidden):
        common = math.gcd(*hidden)
        near = " or ".join(str(n) for n in range(1, min(common, 4 * etp) + 1) if common % n == 0)
        found.append(f"{min(hidden)} numbers inside an expert do not divide by etp={etp}: take etp={near}")
    return found


def context_misfits(model: Sequential, cp: int, kind: str = "auto", tp: int = 1) -> list[str]:
    """What keeps so many ranks from sharing the tokens of a sample: layers other than a transformer's, or too few heads
    of keys and values for `kind` "ulysses".
    """
    fit = Attention | Embedding | Unembedding | Dropout | LayerNorm | RMSNorm | FeedForward | GatedFeedForward | Experts
    strange = sorted({type(part).__name__ for part in parts_of(model) if not isinstance(part, fit)})
    least = min((part.kv_heads // tp for part in parts_of(model) if isinstance(part, Attention)), default=cp)
    if cp > max(least, 1) and kind == "ulysses":
        few = f"cp up to {max(least, 1)}, or ring, gather or auto"
        return [f"ulysses deals {least} heads of keys to cp={cp} ranks: take {few}"]
    if cp == 1 or not strange:
        return []
    return [f"cp={cp} is for language models, and this model has {', '.join(strange)}: take cp=1"]


def held_parts(parts: int, ranks: int) -> list[range]:
    """The parts that each rank holds: one each, or where there are more, those of a node of their tree."""
    if parts == ranks:
        return [range(rank, rank + 1) for rank in range(ranks)]
    return [range(node.first, node.first + node.parts) for node in subtrees(parts, ranks)]


def local_sizes(model: Sequential, ranks: int, parts: int = 0) -> dict[str, int]:
    """Elements of each parameter on the rank that holds most of it, where it is cut into `parts` or one for each."""
    parts = parts or ranks
    made = cuts(model, parts) if parts > 1 else {}
    held = held_parts(parts, ranks)
    return {
        p.name: max(sum(map(made[p.name].size, each)) for each in held) if p.name in made else p.size
        for p in model.parameters()
    }


def own_part(parameter: Parameter, cut: Cut | None, rank: int) -> Parameter:
    """A part of a parameter, or all of it: a parameter of its own, named after its number, without values."""
    if cut is None:
        return replace(parameter, value=None, stored=None, grad=None, second_grad=None)
    shape = cut.shape(rank)
    return replace(
        parameter,
        name=f"{parameter.name}{PART}{rank}",
        shape=shape,
        cut=cut,
        rank=rank,
        experts=parameter.experts and shape[0],
        value=None,
        stored=None,
        grad=None,
        second_grad=None,
    )


def token_bounds(tokens: tuple[int, int], parts: int) -> list[tuple[int, int]]:
    """Rows of the flat tokens of a microbatch in each part; tokens: samples, and tokens of a sample."""
    return list(pairwise(block_starts(math.prod(tokens), parts).tolist()))
