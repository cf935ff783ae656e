"""The shape of a network: as the settings say it, or as the config.json of a checkpoint does."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from hpckit.apps.train.settings.network import LANGUAGE, Model
from hpckit.errors import InputError
from hpckit.io.config_json import CONFIG, MIXTURES, SHARED, described, fault_of
from hpckit.nn.activations import IN_TRANSFORMERS
from hpckit.nn.transformer.rotary import RopeScaling
from hpckit.plan.inputs.text import parse_json, read_bytes

SIDE = 8  # pixels of a digit along either dim
KERNEL = 3  # pixels that a convolution sees along either dim
NORM_EPS = 1e-5


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
    expert_capacity: float = 0.0

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
            expert_capacity=model.expert_capacity,
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
        expert_capacity=model.expert_capacity,
    )


def read_shape(weights: Path, kind: str) -> Shape:
    """The shape of a checkpoint, from the config.json in its folder. Raises `InputError`."""
    path = (weights if weights.is_dir() else weights.parent) / CONFIG
    try:
        if not path.exists():
            raise FileNotFoundError
        given = parse_json(read_bytes(path, "the description"))
        found = str(given["model_type"])
        found = "llama" if found in MIXTURES else found  # a Llama with experts
        if found != kind:
            raise InputError(
                f"the checkpoint in {path.parent} is of the kind {found!r}, and model.kind is {kind!r}",
                do=f"set model.kind to {found}" if found in LANGUAGE else f"give one of {' or '.join(LANGUAGE)}",
            )
        told = described(given)
    except FileNotFoundError:
        raise InputError(
            f"there is no {CONFIG} beside the weights in {path.parent}",
            likely="only a part of the checkpoint was copied",
            do=f"put the {CONFIG} of the checkpoint beside its weights",
        ) from None
    except (ValueError, KeyError, TypeError) as problem:
        raise InputError(f"{path} does not describe a {kind} network: {fault_of(problem)}") from None
    unknown = list(told.strange)
    unknown += ["biases in attention or MLP"] * bool(kind == "llama" and told.biased)
    if told.heads * told.head_width != told.width:
        unknown.append("heads whose widths do not add up to the model's")
    if unknown:
        raise InputError(f"{path}: this app has no {', no '.join(unknown)}", do="give another checkpoint")
    common = ("vocab", "layers", "width", "heads", "kv_heads", "hidden", "context", "tied", "experts", "shared_expert")
    own: dict[str, Any] = {name: getattr(told, name) for name in common} | {"kind": kind, "norm_eps": told.eps}
    if kind == "gpt2":
        return Shape(**own, activation=told.activation)
    own |= {"top_k": told.chosen} if told.experts else {}
    return Shape(**own, rope_base=told.rope_base, rope_scaling=told.rope_scaling)


def _rope_record(shape: Shape) -> dict[str, Any]:
    """What transformers reads of rotary positions, as its releases before 5 and since do."""
    scaling, common = shape.rope_scaling, {"rope_theta": shape.rope_base}
    if scaling is None:
        return common
    record: dict[str, Any] = {"rope_type": "linear", "factor": scaling.factor}
    if math.isfinite(scaling.low):
        names = ("beta_slow", "beta_fast") if scaling.yarn else ("low_freq_factor", "high_freq_factor")
        record |= dict(zip(names, (scaling.low, scaling.high), strict=True), rope_type="llama3")
        record |= {"original_max_position_embeddings": scaling.original}
    if scaling.yarn:
        record |= {"rope_type": "yarn", "attention_factor": scaling.gain, "truncate": scaling.whole}
    return {**common, "rope_scaling": record}


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
