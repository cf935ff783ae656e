"""The shape of a language model to be served, as the config.json of a Hugging Face folder or a GGUF file says it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpckit.errors import InputError
from hpckit.nn.activations import IN_TRANSFORMERS
from hpckit.nn.rotary import RopeScaling, rope_kind, rope_scaling
from hpckit.plan.text import parse_json, read_bytes
from hpckit.serving.checkpoint.gguf import SUFFIX, Gguf

CONFIG = "config.json"
KINDS = ("gpt2", "llama", "mistral", "qwen2", "mixtral")


@dataclass(frozen=True)
class Shape:
    """A transformer of one of `KINDS`.

    width: numbers of a token; head_width: of a head. hidden: width inside an MLP, or an expert. context: tokens that a
    text may have. rope_base: 0 where positions are learned. experts: 0 for a plain MLP, of which `chosen` see a token.
    end: tokens that end a text.
    """

    kind: str
    vocab: int
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_width: int
    hidden: int
    context: int
    eps: float
    activation: str = "silu"
    rope_base: float = 0.0
    rope_scaling: RopeScaling | None = None
    tied: bool = False
    experts: int = 0
    chosen: int = 0
    end: tuple[int, ...] = ()

    @property
    def group(self) -> int:
        """Heads of queries on a head of keys and values."""
        return self.heads // self.kv_heads

    @property
    def is_gated(self) -> bool:
        """Whether the MLP is down(silu(gate(x)) up(x))."""
        return self.kind != "gpt2"

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

    @property
    def kv_bytes(self) -> int:
        """Bytes of keys and values of a token, in all layers."""
        return 2 * 4 * self.layers * self.kv_heads * self.head_width


def read_shape(folder: Path) -> Shape:
    """The shape of the checkpoint in a folder, or of a GGUF file. Raises `InputError` for one that cannot be served."""
    path = folder if folder.suffix == SUFFIX else folder / CONFIG
    try:
        given = Gguf(path).config if path is folder else parse_json(read_bytes(path, "the description"))
        kind = str(given["model_type"])
        if kind not in KINDS:
            raise InputError(f"{path} describes a model of the kind {kind!r}", do=f"give one of {', '.join(KINDS)}")
        shape = _gpt2(given) if kind == "gpt2" else _llama(given, kind)
    except (ValueError, KeyError, TypeError) as problem:
        raise InputError(f"{path} does not describe a language model: {problem!r}") from None
    strange = _strange(given, kind)
    if strange:
        raise InputError(f"{path}: a model with {', with '.join(strange)} cannot be served", do="give another model")
    return shape


def _gpt2(given: dict[str, Any]) -> Shape:
    width, heads = int(given["n_embd"]), int(given["n_head"])
    return Shape(
        kind="gpt2",
        vocab=int(given["vocab_size"]),
        layers=int(given["n_layer"]),
        width=width,
        heads=heads,
        kv_heads=heads,
        head_width=width // heads,
        hidden=int(given.get("n_inner") or 4 * width),
        context=int(given["n_positions"]),
        eps=float(given.get("layer_norm_epsilon", 1e-5)),
        activation=IN_TRANSFORMERS.get(given.get("activation_function", "gelu_new"), ""),
        tied=bool(given.get("tie_word_embeddings", True)),
        end=_ends(given),
    )


def _llama(given: dict[str, Any], kind: str) -> Shape:
    heads = int(given["num_attention_heads"])
    parameters = given.get("rope_parameters") or {}
    context = int(given["max_position_embeddings"])
    if window := given.get("sliding_window"):
        uses = given.get("use_sliding_window", True) if kind == "qwen2" else True
        context = min(context, int(window)) if uses else context  # a text within the window is not slid over
    return Shape(
        kind=kind,
        vocab=int(given["vocab_size"]),
        layers=int(given["num_hidden_layers"]),
        width=int(given["hidden_size"]),
        heads=heads,
        kv_heads=int(given.get("num_key_value_heads") or heads),
        head_width=int(given.get("head_dim") or given["hidden_size"] // heads),
        hidden=int(given["intermediate_size"]),
        context=context,
        eps=float(given.get("rms_norm_eps", 1e-6)),
        activation=IN_TRANSFORMERS.get(given.get("hidden_act", "silu"), ""),
        rope_base=float(given.get("rope_theta") or parameters.get("rope_theta") or (1e6 if kind == "mixtral" else 1e4)),
        rope_scaling=rope_scaling(given),
        tied=bool(given.get("tie_word_embeddings", False)),
        experts=int(given["num_local_experts"]) if kind == "mixtral" else 0,
        chosen=int(given["num_experts_per_tok"]) if kind == "mixtral" else 0,
        end=_ends(given),
    )


def _ends(given: dict[str, Any]) -> tuple[int, ...]:
    found = given.get("eos_token_id")
    return tuple(int(token) for token in (found if isinstance(found, list) else [] if found is None else [found]))


def _strange(given: dict[str, Any], kind: str) -> list[str]:
    """What a config.json asks for that is not served."""
    if kind == "gpt2":
        wrong = {
            f"the activation {given.get('activation_function')}": _gpt2(given).activation == "",
            "attention without scaled scores": not given.get("scale_attn_weights", True),
            "attention scaled by the layer's number": bool(given.get("scale_attn_by_inverse_layer_idx")),
            "cross-attention": bool(given.get("add_cross_attention")),
        }
    else:
        wrong = {
            f"the activation {given.get('hidden_act')}": IN_TRANSFORMERS.get(given.get("hidden_act", "silu")) != "silu",
            f"rotary positions of the kind {rope_kind(given)}": rope_kind(given)
            not in ("default", "linear", "llama3", "factors"),
            "biases in attention or MLP": kind != "qwen2"
            and bool(given.get("attention_bias") or given.get("mlp_bias")),
            "rotary positions on a part of a head": float(given.get("partial_rotary_factor") or 1) != 1,
        }
    return [what for what, is_so in wrong.items() if is_so]
