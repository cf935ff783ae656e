"""The shape of a language model to be served, as the config.json of a Hugging Face folder or a GGUF file says it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hpckit.errors import InputError
from hpckit.io.config_json import CONFIG, Description, described, fault_of
from hpckit.plan.blocks import block
from hpckit.plan.inputs.text import parse_json, read_bytes
from hpckit.serving.checkpoint.gguf import SUFFIX, Gguf

# The greatest numbers of a shape that are read: beyond those of any model, and what memory could hold.
MOST = {
    "vocab": 1 << 24,
    "layers": 1 << 14,
    "width": 1 << 20,
    "heads": 1 << 16,
    "kv_heads": 1 << 16,
    "head_width": 1 << 16,
    "hidden": 1 << 24,
    "context": 1 << 26,
}
KINDS = ("gpt2", "llama", "mistral", "qwen2", "mixtral")


@dataclass(frozen=True)
class TransformerShape(Description):
    """A transformer of one of `KINDS`, with a context of the tokens that a text may have."""

    @property
    def group(self) -> int:
        """Heads of queries on a head of keys and values."""
        return self.heads // self.kv_heads

    @property
    def is_gated(self) -> bool:
        """Whether the MLP is down(silu(gate(x)) up(x))."""
        return self.kind != "gpt2"

    def window_of(self, layer: int) -> int:
        """Tokens that a token sees in a layer, itself included; 0 for all of its text."""
        return self.window if layer in self.slid else 0

    def matrices(self) -> dict[str, tuple[int, int, int]]:
        """Of each kind of matrix: how many there are, inputs and outputs. Embeddings are not multiplied."""
        mixed = self.heads * self.head_width
        each = max(1, self.experts) * self.layers
        found = {
            "qkv": (self.layers, self.width, mixed + 2 * self.kv_heads * self.head_width),
            "out": (self.layers, mixed, self.width),
            "up": (each * (2 if self.is_gated else 1), self.width, self.hidden),
            "down": (each, self.hidden, self.width),
            "head": (1, self.width, self.vocab),
        }
        return found | ({"router": (self.layers, self.width, self.experts)} if self.experts else {})

    def read_share(self, name: str) -> float:
        """The share of these matrices that one token reads: of experts, those that are chosen."""
        return self.chosen / self.experts if self.experts and name in ("up", "down") else 1.0

    def layers_of(self, stages: int) -> list[range]:
        """The layers of each stage, so that the stage with the most to read has the least, and counts differ by as
        little as that allows: the last one has the head, too.

        Raises `InputError` for more stages than layers.
        """
        if stages > self.layers:
            raise InputError(f"{stages} stages for {self.layers} layers", do=f"give at most {self.layers} stages")
        sizes = {name: count * a * b * self.read_share(name) for name, (count, a, b) in self.matrices().items()}
        head = sizes.pop("head") / (sum(sizes.values()) / self.layers)  # in layers
        least = self.layers // stages
        last = min(range(1, least + 1), key=lambda n: (max(n + head, -(-(self.layers - n) // max(1, stages - 1))), -n))
        last = self.layers if stages == 1 else last
        counts = [*(block(self.layers - last, stages - 1, n)[1] for n in range(stages - 1)), last]
        ends = np.cumsum(counts).tolist()
        return [range(end - count, end) for end, count in zip(ends, counts, strict=True)]

    @property
    def kv_bytes(self) -> int:
        """Bytes of keys and values of a token, in all layers."""
        return 2 * 4 * self.layers * self.kv_heads * self.head_width


def read_shape(folder: Path) -> TransformerShape:
    """The shape of the checkpoint in a folder, or of a GGUF file. Raises `InputError` for one that cannot be served."""
    path = folder if folder.suffix == SUFFIX else folder / CONFIG
    try:
        given = Gguf(path).config if path is folder else parse_json(read_bytes(path, "the description"))
        kind = str(given["model_type"])
        if kind not in KINDS:
            raise InputError(f"{path} describes a model of the kind {kind!r}", do=f"give one of {', '.join(KINDS)}")
        found = described(given)
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as problem:
        raise InputError(f"{path} does not describe a language model: {fault_of(problem)}") from None
    if found.strange:
        raise InputError(
            f"{path}: a model with {', with '.join(found.strange)} cannot be served", do="give another model"
        )
    own = vars(found)
    wrong = [f"{name} = {own[name]}" for name, most in MOST.items() if not 1 <= own[name] <= most]
    wrong += [f"{name} = {own[name]}" for name in ("eps", "rope_base") if not 0.0 <= own[name] < math.inf]
    wrong += [f"an end of texts at {end!s:.20}" for end in own["end"] if not 0 <= end < 1 << 31]
    wrong += [f"a window of {found.window}"] * (found.window < 0)
    if own["rope_base"] and own["head_width"] % 2:
        wrong += [f"heads of {own['head_width']} numbers, which do not turn in pairs"]
    if own["experts"] and not 1 <= own["chosen"] <= own["experts"]:
        wrong += [f"{own['chosen']} of {own['experts']} experts a token"]
    if not wrong and own["heads"] % own["kv_heads"]:
        wrong = [f"{own['heads']} heads for {own['kv_heads']} of keys"]
    if wrong:
        raise InputError(f"{path} does not describe a language model: {', '.join(wrong)}", do="give another model")
    return TransformerShape(**own)
