"""Names and layouts of weights in transformers, and the mapping to ours.

GPT-2 keeps matrices as [inputs, outputs] there, as all do here; Llama keeps [outputs, inputs], and queries, keys and
values apart. Tables of embeddings and heads are [vocab, width] on both sides. A tied head has no tensor of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from hpckit.apps.train.shape import CONFIG, Shape
from hpckit.errors import InputError
from hpckit.io.safetensors import Safetensors
from hpckit.nn.parameters import Parameter

# Ours -> theirs, of a block's parameters without its number, and of the rest.
GPT2 = {
    "norm1.gain": "ln_1.weight",
    "norm1.bias": "ln_1.bias",
    "attention.qkv.weight": "attn.c_attn.weight",
    "attention.qkv.bias": "attn.c_attn.bias",
    "attention.out.weight": "attn.c_proj.weight",
    "attention.out.bias": "attn.c_proj.bias",
    "norm2.gain": "ln_2.weight",
    "norm2.bias": "ln_2.bias",
    "mlp.up.weight": "mlp.c_fc.weight",
    "mlp.up.bias": "mlp.c_fc.bias",
    "mlp.down.weight": "mlp.c_proj.weight",
    "mlp.down.bias": "mlp.c_proj.bias",
    "embed.token.weight": "transformer.wte.weight",
    "embed.position.weight": "transformer.wpe.weight",
    "head.norm.gain": "transformer.ln_f.weight",
    "head.norm.bias": "transformer.ln_f.bias",
    "head.weight": "lm_head.weight",
}
LLAMA = {
    "norm1.gain": "input_layernorm.weight",
    "attention.qkv.weight": "self_attn.{}_proj.weight",
    "attention.out.weight": "self_attn.o_proj.weight",
    "norm2.gain": "post_attention_layernorm.weight",
    "mlp.gate.weight": "mlp.gate_proj.weight",
    "mlp.up.weight": "mlp.up_proj.weight",
    "mlp.down.weight": "mlp.down_proj.weight",
    "embed.token.weight": "model.embed_tokens.weight",
    "head.norm.gain": "model.norm.weight",
    "head.weight": "lm_head.weight",
}
MIXTRAL = LLAMA | {
    "mlp.router.weight": "block_sparse_moe.gate.weight",
    "mlp.gate.weight": "block_sparse_moe.experts.[].w1.weight",
    "mlp.up.weight": "block_sparse_moe.experts.[].w3.weight",
    "mlp.down.weight": "block_sparse_moe.experts.[].w2.weight",
    "mlp.shared.gate.weight": "block_sparse_moe.shared_expert.w1.weight",
    "mlp.shared.up.weight": "block_sparse_moe.shared_expert.w3.weight",
    "mlp.shared.down.weight": "block_sparse_moe.shared_expert.w2.weight",
}
TABLES = {
    "gpt2": (GPT2, "transformer.h."),
    "llama": (LLAMA, "model.layers."),
    "mixtral": (MIXTRAL, "model.layers."),
}
BARE = "transformer."  # which the first GPT-2 checkpoints leave out
HEAD = "lm_head.weight"
MOST_NAMED = 4  # misfits that a message names
EACH = "[]"  # stands for the number of an expert; all are one weight here: [experts, inputs, outputs]
SPLIT = "{}"  # stands for q, k and v, which are one weight here: [width, queries | keys | values]


def their_name(kind: str, name: str) -> str:
    """The name in transformers of our parameter `name`."""
    table, blocks = TABLES[kind]
    found = re.fullmatch(r"block\.(\d+)\.(.+)", name)
    return f"{blocks}{found[1]}.{table[found[2]]}" if found else table[name]


class Source(NamedTuple):
    """Where a tensor of theirs comes from: columns of our parameter `ours` from `first` on, one of its experts, or all.

    shape: theirs. turned: their rows are our columns. expert: its number, or -1.
    """

    ours: str
    shape: tuple[int, ...]
    turned: bool = False
    first: int = 0
    expert: int = -1

    def box(self, row: int, count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The box of our parameter, start and shape, of so many of their rows."""
        if self.turned:
            one = ((self.expert,), (1,)) if self.expert >= 0 else ((), ())
            return (*one[0], 0, self.first + row), (*one[1], self.shape[1], count)
        return (row, *[0] * (len(self.shape) - 1)), (count, *self.shape[1:])

    def rows(self, box: np.ndarray) -> np.ndarray:
        """Their rows, from that box of our numbers."""
        return (box[0] if self.expert >= 0 else box).T if self.turned else box


def sources(shape: Shape, parameters: Iterable[Parameter]) -> dict[str, Source]:
    """Their tensors by name, in the order of our parameters, each with its place among them."""
    found = {}
    for parameter in parameters:
        theirs = their_name(shape.names, parameter.name)
        if EACH in theirs:
            for number in range(shape.experts):
                size = parameter.shape[:0:-1]
                found[theirs.replace(EACH, str(number))] = Source(parameter.name, size, True, expert=number)
        elif SPLIT in theirs:
            ends = [0, *_splits(shape), parameter.shape[1]]
            for letter, (first, end) in zip("qkv", pairwise(ends), strict=True):
                size = end - first, parameter.shape[0]
                found[theirs.replace(SPLIT, letter)] = Source(parameter.name, size, True, first)
        elif _is_turned(shape.names, parameter.name):
            found[theirs] = Source(parameter.name, parameter.shape[::-1], True)
        else:
            found[theirs] = Source(parameter.name, parameter.shape)
    return found


def from_hugging_face(shape: Shape, tensors: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    """Our parameter `name` from their tensors. Raises `KeyError` with their name where it is not there."""
    theirs = their_name(shape.names, name)
    if EACH in theirs:
        return np.stack([tensors[theirs.replace(EACH, str(number))].T for number in range(shape.experts)])
    if SPLIT in theirs:
        return np.concatenate([tensors[theirs.replace(SPLIT, letter)].T for letter in "qkv"], axis=1)
    if theirs not in tensors and theirs.removeprefix(BARE) in tensors:
        theirs = theirs.removeprefix(BARE)
    if theirs == HEAD and theirs not in tensors:
        theirs = their_name(shape.names, "embed.token.weight")
    return tensors[theirs].T if _is_turned(shape.names, name) else tensors[theirs]


def require_fit(shape: Shape, tensors: Safetensors, parameters: Iterable[Parameter]) -> None:
    """Raise `InputError` unless a checkpoint has all of these parameters in their shapes; no tensor is read."""
    shapes = {name: np.broadcast_to(np.zeros((), np.uint8), tensors.shape(name)) for name in tensors}
    problems = []
    for parameter in parameters:
        try:
            found = from_hugging_face(shape, shapes, parameter.origin).shape
        except KeyError as missing:
            problems.append(f"no tensor {missing.args[0]}")
        except ValueError:  # queries, keys and values that do not stand beside each other
            problems.append(f"the parts of {parameter.origin} have shapes that do not go together")
        else:
            if found != parameter.whole:
                problems.append(f"{parameter.origin} should be {parameter.whole} and is {found}")
    if problems:
        more = f" and {len(problems) - MOST_NAMED} more" if len(problems) > MOST_NAMED else ""
        raise InputError(
            f"{tensors.path} does not fit its {CONFIG}: {'; '.join(problems[:MOST_NAMED])}{more}",
            likely="weights of another network, or only a part of them",
            do="give weights and config.json of one checkpoint",
        )


def _is_turned(kind: str, name: str) -> bool:
    """Whether they keep the transpose of our parameter."""
    return kind in ("llama", "mixtral") and name.startswith("block.") and name.endswith(".weight")


def _splits(shape: Shape) -> list[int]:
    """Where in the columns of our fused weight the keys begin, and the values."""
    each = shape.width // shape.heads
    return [shape.width, shape.width + shape.kv_heads * each]
