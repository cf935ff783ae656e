"""The shape of a network: as the settings say it, or as the config.json of a checkpoint does."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from hpckit.apps.train.config import LANGUAGE, Model
from hpckit.errors import InputError
from hpckit.nn.activations import IN_TRANSFORMERS
from hpckit.nn.rotary import RopeScaling, rope_kind, rope_scaling
from hpckit.plan.text import parse_json, read_bytes

SIDE = 8  # pixels of a digit along either dim
KERNEL = 3  # pixels that a convolution sees along either dim
CONFIG = "config.json"
NORM_EPS = 1e-5
SHARED = "mixtral_shared"  # model_type of experts with a map beside them: transformers has no such network


@dataclass(frozen=True)
class Shape:
    """A network of one of the kinds of `Model`; see there. vocab: answers it chooses among.

    hidden: width inside a block's MLP. activation: of a GPT-2's MLP, or between the layers of an `mlp`, a name
    of `hpckit.nn.activations`; other kinds have a fixed one. experts: in each block, of which a token goes through
    `top_k`; 0 for a plain gated map. shared_expert: hidden width of the map beside them. norm_eps: added to the
    variance in its norms. recompute: what is worked out again in the backward pass, see `Model.recomputed`.
    """

    kind: str
    vocab: int
    layers: int
    width: int
    heads: int = 1
    kv_heads: int = 1
    hidden: int = 0
    context: int = 0
    rope_base: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    tied: bool = False
    dropout: float = 0.0
    attention_dropout: float = 0.0
    activation: str = "gelu"
    channels: tuple[int, ...] = ()
    norm_eps: float = NORM_EPS
    recompute: str = ""
    experts: int = 0
    top_k: int = 2
    expert_balance: float = 0.01
    router_z: float = 0.001
    shared_expert: int = 0

    @property
    def names(self) -> str:
        """The kind whose names its weights have in transformers."""
        return "mixtral" if self.experts else self.kind

    @property
    def is_language(self) -> bool:
        """Whether this is a language model; otherwise it classifies images."""
        return self.kind in LANGUAGE

    def products(self, window: int) -> list[float]:
        """Multiply-adds of the forward pass for one sample (an image, or `window` tokens), layer by layer.

        They count matrices and the unmasked half of the attention, not embedding lookups.
        """
        if self.kind == "cnn":
            return self._image_products()
        if self.kind == "mlp":
            sizes = [SIDE * SIDE, *[self.width] * self.layers, self.vocab]
            return [float(a * b) for a, b in pairwise(sizes)]
        inside = (3 if self.kind == "llama" else 2) * self.width * self.hidden
        if self.experts:
            inside = self.top_k * inside + self.width * (self.experts + 3 * self.shared_expert)
        keys = 2 * self.width * (self.width // self.heads) * self.kv_heads
        block = 2 * self.width**2 + keys + inside + (window + 1) * self.width
        return [window * n for n in (0.0, *[float(block)] * self.layers, float(self.vocab * self.width))]

    def _image_products(self) -> list[float]:
        side, inputs, found = SIDE, 1, []
        for outputs in self.channels:
            found.append(float(side * side * KERNEL**2 * inputs * outputs))
            side, inputs = side // 2, outputs
        return [*found, float(side * side * inputs * self.vocab)]

    def training_flops(self, window: int) -> float:
        """Floating-point operations of one sample forward and backward: 6 for each multiply-add of the forward pass.

        2 forward, 2 for the gradient of the input, 2 for that of the weights. Recomputed activations do not count.
        """
        return 6.0 * sum(self.products(window))


def shape_of(model: Model, classes: int) -> Shape:
    """The shape that the settings mean. classes: the answers that the data has; a checkpoint has its own number.

    Raises `InputError` for a checkpoint without a config.json, or one that this app cannot load.
    """
    if model.weights is not None:
        return replace(
            read_shape(model.weights, model.kind),
            dropout=model.dropout,
            attention_dropout=model.weights_dropout,
            recompute=model.recomputed,
            expert_balance=model.expert_balance,
            router_z=model.router_z,
        )
    return Shape(
        kind=model.kind,
        vocab=classes,
        layers=model.layers,
        width=model.width,
        heads=model.heads,
        kv_heads=model.kv_heads or model.heads,
        hidden=model.mlp_width,
        context=model.context,
        rope_base=model.rope_base,
        tied=model.is_language and model.is_tied,
        dropout=model.dropout,
        attention_dropout=model.weights_dropout,
        activation=model.mlp_activation,
        channels=model.channels,
        recompute=model.recomputed,
        experts=model.experts,
        top_k=model.top_k,
        expert_balance=model.expert_balance,
        router_z=model.router_z,
        shared_expert=model.shared_expert,
    )


def read_shape(weights: Path, kind: str) -> Shape:
    """The shape of a checkpoint, from the config.json in its folder. Raises `InputError`."""
    path = (weights if weights.is_dir() else weights.parent) / CONFIG
    try:
        if not path.exists():
            raise FileNotFoundError
        given = parse_json(read_bytes(path, "the description"))
        found = str(given["model_type"])
        found = "llama" if found in ("mixtral", SHARED) else found  # a Llama with experts
        if found != kind:
            raise InputError(
                f"the checkpoint in {path.parent} is of the kind {found!r}, and model.kind is {kind!r}",
                do=f"set model.kind to {found}" if found in LANGUAGE else f"give one of {' or '.join(LANGUAGE)}",
            )
        shape = _gpt2(given) if kind == "gpt2" else _llama(given)
    except FileNotFoundError:
        raise InputError(
            f"there is no {CONFIG} beside the weights in {path.parent}",
            likely="only a part of the checkpoint was copied",
            do=f"put the {CONFIG} of the checkpoint beside its weights",
        ) from None
    except (ValueError, KeyError, TypeError) as problem:
        raise InputError(f"{path} does not describe a {kind} network: {problem!r}") from None
    unknown = [what for what, strange in _strange(given, kind) if strange]
    if unknown:
        raise InputError(f"{path}: this app has no {', no '.join(unknown)}", do="give another checkpoint")
    return shape


def _gpt2(given: dict[str, Any]) -> Shape:
    return Shape(
        kind="gpt2",
        vocab=int(given["vocab_size"]),
        layers=int(given["n_layer"]),
        width=int(given["n_embd"]),
        heads=int(given["n_head"]),
        kv_heads=int(given["n_head"]),
        hidden=int(given.get("n_inner") or 4 * given["n_embd"]),
        context=int(given["n_positions"]),
        tied=bool(given.get("tie_word_embeddings", True)),
        activation=IN_TRANSFORMERS.get(given.get("activation_function", "gelu_new"), ""),
        norm_eps=float(given.get("layer_norm_epsilon", NORM_EPS)),
    )


def _llama(given: dict[str, Any]) -> Shape:
    rope = given.get("rope_parameters") or {}
    return Shape(
        kind="llama",
        vocab=int(given["vocab_size"]),
        layers=int(given["num_hidden_layers"]),
        width=int(given["hidden_size"]),
        heads=int(given["num_attention_heads"]),
        kv_heads=int(given.get("num_key_value_heads") or given["num_attention_heads"]),
        hidden=int(given["intermediate_size"]),
        context=int(given["max_position_embeddings"]),
        rope_base=float(given.get("rope_theta") or rope.get("rope_theta") or 10_000.0),
        rope_scaling=rope_scaling(given),
        tied=bool(given.get("tie_word_embeddings", False)),
        norm_eps=float(given.get("rms_norm_eps", 1e-6)),
        experts=int(given.get("num_local_experts") or 0),
        shared_expert=int(given.get("shared_expert_intermediate_size") or 0),
        top_k=int(given.get("num_experts_per_tok") or 2),
    )


def _rope_record(shape: Shape) -> dict[str, Any]:
    """What transformers reads of rotary positions, as its releases before 5 and since do."""
    scaling, common = shape.rope_scaling, {"rope_theta": shape.rope_base}
    if scaling is None:
        return common
    record: dict[str, Any] = {"rope_type": "linear", "factor": scaling.factor}
    if math.isfinite(scaling.low):
        record |= {"rope_type": "llama3", "low_freq_factor": scaling.low, "high_freq_factor": scaling.high}
        record |= {"original_max_position_embeddings": scaling.original}
    return {**common, "rope_scaling": record}


def _strange(given: dict[str, Any], kind: str) -> list[tuple[str, bool]]:
    """What a config.json may ask for that the networks here do not have, and whether it does."""
    if kind == "gpt2":
        return [
            (f"activation {given.get('activation_function')}", _gpt2(given).activation == ""),
            ("attention without scaled scores", not given.get("scale_attn_weights", True)),
            ("attention scaled by the layer's number", bool(given.get("scale_attn_by_inverse_layer_idx"))),
            ("cross-attention", bool(given.get("add_cross_attention"))),
        ]
    turning = rope_kind(given)
    heads, width = given["num_attention_heads"], given["hidden_size"]
    return [
        (f"activation {given.get('hidden_act')}", given.get("hidden_act", "silu") != "silu"),
        (f"rotary positions of the kind {turning}", turning not in ("default", "linear", "llama3")),
        ("biases in attention or MLP", bool(given.get("attention_bias") or given.get("mlp_bias"))),
        ("heads whose widths do not add up to the model's", heads * (given.get("head_dim") or width // heads) != width),
    ]


def hugging_face_config(shape: Shape, precision: str = "float32") -> dict[str, Any]:
    """The config.json of a language model, as transformers reads it. precision: that of its tensors."""
    common = {"vocab_size": shape.vocab, "tie_word_embeddings": shape.tied, "torch_dtype": precision}
    if shape.kind == "gpt2":
        return {
            **common,
            "model_type": "gpt2",
            "architectures": ["GPT2LMHeadModel"],
            "n_layer": shape.layers,
            "n_embd": shape.width,
            "n_head": shape.heads,
            "n_positions": shape.context,
            "n_inner": shape.hidden,
            "activation_function": next(theirs for theirs, ours in IN_TRANSFORMERS.items() if ours == shape.activation),
            "layer_norm_epsilon": shape.norm_eps,
            "attn_pdrop": shape.attention_dropout,
            **dict.fromkeys(("embd_pdrop", "resid_pdrop"), shape.dropout),
            **dict.fromkeys(("bos_token_id", "eos_token_id")),
        }
    named: dict[str, Any] = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    if shape.experts:
        named = {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "sliding_window": None}
        named |= {"num_local_experts": shape.experts, "num_experts_per_tok": shape.top_k}
    if shape.shared_expert:
        named |= {"model_type": SHARED, "architectures": [], "shared_expert_intermediate_size": shape.shared_expert}
    return {
        **common,
        **named,
        "num_hidden_layers": shape.layers,
        "hidden_size": shape.width,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "intermediate_size": shape.hidden,
        "max_position_embeddings": shape.context,
        **_rope_record(shape),
        "rms_norm_eps": shape.norm_eps,
        "hidden_act": "silu",
        "attention_dropout": shape.attention_dropout,
        **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id")),
    }
