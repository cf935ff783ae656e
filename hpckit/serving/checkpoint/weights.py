"""The weights of a model: this rank's columns of every matrix, packed for the tile as they are read.

A matrix is split over ranks by panels of its columns, and that of queries, keys and values by groups: so every output
is one chain of additions on one rank, and has the bits that one rank alone gives it. All ranks of a node together hold
each weight once, whatever replicas they are; rows of the table of tokens are read from the mapped file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hpckit.errors import InputError
from hpckit.io.safetensors import BFLOAT16, Safetensors
from hpckit.kernels.nn.tile import dispatch as tile
from hpckit.kernels.nn.tile.packed import KINDS, Packed, panel_shape
from hpckit.kernels.nn.tile.tile import width_of
from hpckit.plan.blocks import block
from hpckit.serving.checkpoint.gguf import SUFFIX, Gguf
from hpckit.serving.checkpoint.shape import TransformerShape
from hpckit.serving.team import Team

Floats = npt.NDArray[np.float32]
# Of transformers: the blocks, and a block's parts by our names; {} is the number of an expert.
GPT2 = {
    "blocks": "transformer.h.",
    "norm1": "ln_1",
    "qkv": "attn.c_attn",
    "out": "attn.c_proj",
    "norm2": "ln_2",
    "up": "mlp.c_fc",
    "down": "mlp.c_proj",
    "embed": "transformer.wte",
    "positions": "transformer.wpe",
    "norm": "transformer.ln_f",
    "head": "lm_head",
}
LLAMA = {
    "blocks": "model.layers.",
    "norm1": "input_layernorm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "out": "self_attn.o_proj",
    "norm2": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
    "embed": "model.embed_tokens",
    "norm": "model.norm",
    "head": "lm_head",
}
MIXTRAL = {
    **LLAMA,
    "router": "block_sparse_moe.gate",
    "gate": "block_sparse_moe.experts.{}.w1",
    "up": "block_sparse_moe.experts.{}.w3",
    "down": "block_sparse_moe.experts.{}.w2",
}
LAYER = re.compile(r"^(?:model\.layers|transformer\.h|h)\.(\d{1,9})\.")  # the number of a tensor's block
BARE = "transformer."  # which the first GPT-2 checkpoints leave out


class PackedMatrix(NamedTuple):
    """Columns begin to end of a matrix, packed; their biases, or None."""

    packed: Packed
    begin: int
    end: int
    bias: Floats | None = None

    def multiply(self, rows: Any, out: Any) -> None:
        """Out = rows @ matrix + bias: [M, inputs] to [M, end - begin]."""
        if self.bias is None:
            tile.multiply(rows, self.packed, out)
        else:
            out[:] = self.bias
            tile.multiply(rows, self.packed, out, add=True)


class Norm(NamedTuple):
    """A norm by root mean squares, or, with biases, a layer norm."""

    gain: Floats
    bias: Floats | None


class Feed(NamedTuple):
    """The MLP of a block, or one of its experts. `up` has the columns of the gate, if there is one, and then its own,
    each filled up to whole panels: one product reads both.
    """

    up: PackedMatrix
    down: PackedMatrix


@dataclass(frozen=True)
class BlockWeights:
    """The weights of a block; `qkv` has the columns of `groups` groups, each filled up to whole panels. window: tokens
    that its attention sees, 0 for all.
    """

    norm1: Norm
    qkv: PackedMatrix
    out: PackedMatrix
    norm2: Norm
    feeds: list[Feed]
    router: Packed | None
    window: int = 0


def _columns(weight: Any, begin: int, end: int) -> Floats:
    return np.asarray(weight[:, begin:end], np.float32)


class Weights:
    """The weights that a rank of the team holds (by default: one alone). kind: a kind of the tile; "" is that of the
    file.

    `groups`: first and number of its groups of heads. `head`: None but on the last stage.

    Raises `InputError` for a checkpoint that does not fit its shape.
    """

    def __init__(self, folder: Path, shape: TransformerShape, kind: str = "", team: Team | None = None) -> None:
        self.shape, self._team = shape, team or Team()
        self._names = GPT2 if shape.kind == "gpt2" else MIXTRAL if shape.experts else LLAMA
        self._tensors: Safetensors | Gguf = Gguf(folder) if folder.suffix == SUFFIX else Safetensors(folder)
        self._check()
        self.kind = kind or self._kind_in_file()
        if self.kind not in KINDS or KINDS[self.kind].sums != "float32":
            told = ", ".join(name for name in KINDS if KINDS[name].sums == "float32")
            raise InputError(f"there are no weights of the kind {self.kind!r}", do=f"choose one of {told}")
        self.panel = width_of(self.kind)
        self.groups = block(shape.kv_heads, self._team.columns, self._team.column)
        lines = (shape.group + 2) * shape.head_width
        self.group_columns = -(-lines // self.panel) * self.panel
        self.blocks = [self._block(i) for i in shape.layers_of(self._team.stages)[self._team.stage]]
        self.norm = self._norm(self._name("norm"))
        self.head = self._head(kind) if self._team.is_last else None
        positions = f"{self._name('positions')}.weight" if shape.kind == "gpt2" else ""
        self.positions = np.ascontiguousarray(self._tensors[positions], np.float32) if positions else None
        self._team.meet()  # what the first replica packed is there

    def _head(self, kind: str) -> PackedMatrix:
        """The matrix of the logits; kind: the one that was asked for."""
        shape = self.shape
        tied = f"{self._name('head')}.weight" not in self._tensors
        table = self._name("embed" if tied or shape.tied else "head")
        weight = self._tensors[f"{table}.weight"]
        own = self._tensors.packed_as(f"{table}.weight") if isinstance(self._tensors, Gguf) and not kind else ""
        return self._sharded([weight.T], shape.width, shape.vocab, kind=own)

    def _kind_in_file(self) -> str:
        if isinstance(self._tensors, Gguf):  # its embeddings may be of another type than what is multiplied
            return self._tensors.packed_as(f"{self._name('out', 0)}.weight")
        return "bfloat16" if self._tensors.kind(f"{self._name('embed')}.weight") == BFLOAT16 else "float32"

    def embed(self, tokens: npt.NDArray[np.integer]) -> Floats:
        """The vectors of tokens, float32 [n, width]."""
        return self._tensors.rows(f"{self._name('embed')}.weight", tokens)

    @property
    def nbytes(self) -> int:
        """Bytes of the packed matrices of this rank."""
        every = [matrix for block in self.blocks for matrix in (block.qkv, block.out)]
        every += [self.head] if self.head else []
        every += [each for block in self.blocks for feed in block.feeds for each in feed]
        return sum(matrix.packed.nbytes for matrix in every)

    def _block(self, number: int) -> BlockWeights:
        s, name = self.shape, lambda part, *expert: self._name(part, number).format(*expert)
        mixed = s.heads * s.head_width
        raised = ("gate", "up") if s.is_gated else ("up",)
        feeds = [
            Feed(
                self._linear([name(part, e) for part in raised], s.width, s.hidden),
                self._linear([name("down", e)], s.hidden, s.width),
            )
            for e in range(max(1, s.experts))
        ]
        router = None
        if s.experts:
            weight = self._tensors[f"{name('router')}.weight"]
            router = self._once("float32", s.width, s.experts, [partial(_columns, weight.T, 0, s.experts)])
        return BlockWeights(
            self._norm(name("norm1")),
            self._qkv(name),
            self._linear([name("out")], mixed, s.width),
            self._norm(name("norm2")),
            feeds,
            router,
            s.window_of(number),
        )

    def _qkv(self, name: Callable[..., str]) -> PackedMatrix:
        """The columns of this rank's groups: of each its queries, its key and its value."""
        s, (first, count), columns = self.shape, self.groups, self.group_columns

        def beside(rows: int, part: int, group: int) -> Floats:
            whole, at = np.zeros((rows, columns), np.float32), 0
            for head in self._heads(name, group):
                end = at + head[0].shape[1]
                whole[:, at:end] = head[part]
                at = end
            return whole

        groups = range(first, first + count)
        packed = self._once(self.kind, s.width, columns, [partial(beside, s.width, 0, group) for group in groups])
        bias = None
        if s.biased & {"q", "qkv"}:
            bias = np.array([beside(1, 1, group) for group in groups], np.float32).reshape(-1)
        return PackedMatrix(packed, first * columns, (first + count) * columns, bias)

    def _heads(self, name: Callable[..., str], group: int) -> Iterator[tuple[Any, Any]]:
        """Weight and bias of the queries, the key and the value of a group: [width, columns], and [columns] or 0."""
        s = self.shape
        for n, (letter, heads) in enumerate((("q", s.group), ("k", 1), ("v", 1))):
            begin, end = (at * heads * s.head_width for at in (group, group + 1))
            if s.kind == "gpt2":
                part = slice(n * s.width + begin, n * s.width + end)
                yield self._tensors[f"{name('qkv')}.weight"][:, part], self._tensors[f"{name('qkv')}.bias"][part]
                continue
            bias = f"{name(letter)}.bias"
            added = self._tensors[bias][begin:end] if bias in self._tensors else 0
            yield self._tensors[f"{name(letter)}.weight"][begin:end].T, added

    def _linear(self, names: list[str], inputs: int, outputs: int) -> PackedMatrix:
        """The panels that are this rank's of each of these matrices, and their biases."""
        weights = [self._tensors[f"{name}.weight"] for name in names]
        across = [weight if self.shape.kind == "gpt2" else weight.T for weight in weights]
        biases = [self._tensors[bias] for name in names if (bias := f"{name}.bias") in self._tensors]
        return self._sharded(across, inputs, outputs, biases)

    def _sharded(
        self, weights: list[Any], inputs: int, outputs: int, biases: Sequence[Any] = (), kind: str = ""
    ) -> PackedMatrix:
        """The panels of matrices [inputs, outputs] that are this rank's. biases: of all or of none; kind: their own."""
        first, count = block(-(-outputs // self.panel), self._team.columns, self._team.column)
        begin, end = (min(n * self.panel, outputs) for n in (first, first + count))
        own = [partial(_columns, weight, begin, end) for weight in weights]
        packed = self._once(kind or self.kind, inputs, end - begin, own)
        added = None
        if biases:
            added = np.zeros((len(biases), packed.outputs // len(biases)), np.float32)
            for line, bias in zip(added, biases, strict=True):
                line[: end - begin] = bias[begin:end]
            added = added.reshape(-1)
        return PackedMatrix(packed, begin, end, added)

    def _once(self, kind: str, inputs: int, outputs: int, weights: Sequence[Callable[[], Floats]]) -> Packed:
        """Matrices [inputs, outputs] packed as one, side by side; of several each is filled up to whole panels. They
        exist once for all replicas: the first one packs them.
        """
        width = width_of(kind)
        each = -(-outputs // width)
        wide = outputs if len(weights) == 1 else len(weights) * each * width
        panels = self._panels(kind, inputs, wide)
        if not self._team.replica:
            for n, weight in enumerate(weights):
                tile.pack(weight(), kind, panels[n * each : (n + 1) * each])
        return Packed(kind, inputs, wide, width, panels)

    def _panels(self, kind: str, inputs: int, outputs: int) -> Any:
        """Memory for packed columns, that of all replicas."""
        shape = panel_shape(kind, inputs, outputs, width_of(kind))
        return self._team.array_of_twins(shape, KINDS[kind].memory)

    def _norm(self, name: str) -> Norm:
        gain, bias = (self._tensors.get(f"{name}.{part}") for part in ("weight", "bias"))
        assert gain is not None
        return Norm(np.array(gain, np.float32), None if bias is None else np.array(bias, np.float32))

    def _name(self, part: str, number: int | None = None) -> str:
        name = self._names[part] if number is None else f"{self._names['blocks']}{number}.{self._names[part]}"
        bare = name.removeprefix(BARE)
        return bare if self.shape.kind == "gpt2" and f"{self._names['embed']}.weight" not in self._tensors else name

    def _check(self) -> None:
        """Raise `InputError` unless all tensors are there in the shapes that config.json means."""
        wrong = []
        for name, expected in self._expected().items():
            if name not in self._tensors:
                wrong.append(f"no tensor {name}")
            elif self._tensors.shape(name) != expected:
                wrong.append(f"{name} should be {list(expected)} and is {list(self._tensors.shape(name))}")
        wrong += [
            f"{name} is beyond its {self.shape.layers} layers"
            for name in self._tensors
            if (found := LAYER.search(name)) and int(found[1]) >= self.shape.layers
        ]
        if wrong:
            more = f" and {len(wrong) - 4} more" if len(wrong) > 4 else ""
            raise InputError(
                f"{self._tensors.path} does not fit its config.json: {'; '.join(wrong[:4])}{more}",
                likely="weights of another network, or only a part of them",
                do="give weights and config.json of one checkpoint",
            )

    def _expected(self) -> dict[str, tuple[int, ...]]:
        s, found = self.shape, dict[str, tuple[int, ...]]()
        mixed, kept = s.heads * s.head_width, s.kv_heads * s.head_width
        found[f"{self._name('embed')}.weight"] = (s.vocab, s.width)
        for number in range(s.layers):
            found[f"{self._name('norm1', number)}.weight"] = found[f"{self._name('norm2', number)}.weight"] = (s.width,)
            if s.kind == "gpt2":
                maps = {"qkv": (3 * s.width, s.width), "out": (s.width, mixed), "up": (s.hidden, s.width)}
            else:
                maps = {"q": (mixed, s.width), "k": (kept, s.width), "v": (kept, s.width), "out": (s.width, mixed)}
                maps |= {"gate": (s.hidden, s.width), "up": (s.hidden, s.width)}
            maps["down"] = (s.width, s.hidden)
            if s.experts:
                found[f"{self._name('router', number)}.weight"] = (s.experts, s.width)
            for part, sizes in maps.items():
                bias = f"{self._name(part, number)}.bias"
                if part in s.biased:
                    found[bias] = sizes[:1]
                elif bias in self._tensors:
                    found[bias] = ()  # which config.json does not know
                for expert in range(max(1, s.experts) if part in ("gate", "up", "down") else 1):
                    name = f"{self._name(part, number).format(expert)}.weight"
                    found[name] = sizes[::-1] if s.kind == "gpt2" else sizes
        return found
