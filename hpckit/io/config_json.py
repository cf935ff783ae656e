"""Language models as a config.json of transformers describes them: one reader for training and serving."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hpckit.nn.activations import IN_TRANSFORMERS
from hpckit.nn.transformer.rotary import RopeScaling, rope_kind, rope_scaling

CONFIG = "config.json"
SHARED = "mixtral_shared"  # model_type of experts with a map beside them: transformers has no such network
MIXTURES = ("mixtral", SHARED)
QUANTIZED = "weights in a quantized format of another library"  # whose scales are tensors of their own
# Where a file is silent, transformers' defaults.
BASE, MIXTURE_BASE = 1e4, 1e6  # of rotary positions
KV_HEADS = {"mistral": 8, "mixtral": 8, "qwen2": 32}  # others have as many as there are heads
WINDOWS = {"mistral": 4096, "mixtral": None, "qwen2": 4096}  # others have none, whatever the file says
TURNINGS = ("default", "linear", "llama3", "yarn", "dynamic", "factors")
GPT2_BIASED = frozenset({"qkv", "out", "up", "down"})


@dataclass(frozen=True)
class Description:
    """What the file says. head_width: numbers of a head; hidden: inside an MLP, or an expert; context: tokens of the
    longest text; window: those that a token sees in the layers `slid`, 0 for all; rope_base: 0 where positions are
    learned; experts: 0 for a plain MLP; biased: maps that add biases (q, k, v, out, gate, up, down; GPT-2's are qkv,
    out, up, down); end: tokens that end a text; strange: what the networks here do not have.
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
    activation: str
    tied: bool
    window: int = 0
    slid: range | frozenset[int] = range(0)
    rope_base: float = 0.0
    rope_scaling: RopeScaling | None = None
    experts: int = 0
    chosen: int = 0
    shared_expert: int = 0
    biased: frozenset[str] = frozenset()
    end: tuple[int, ...] = ()
    strange: tuple[str, ...] = ()


def described(given: dict[str, Any]) -> Description:
    """The model of a config.json: GPT-2's names, or those of Llama and its relatives.

    Raises `KeyError`, `TypeError` or `ValueError` for a file that does not describe one; `fault_of` says what is wrong.
    """
    kind = str(given["model_type"])
    return _gpt2(given) if kind == "gpt2" else _llama(given, kind)


def fault_of(problem: Exception) -> str:
    """In words, what is wrong with a file that does not describe a model."""
    return f"it has no {problem}" if isinstance(problem, KeyError) else str(problem)


def _gpt2(given: dict[str, Any]) -> Description:
    width, heads = int(given["n_embd"]), int(given["n_head"])
    activation = given.get("activation_function", "gelu_new")
    return Description(
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
        activation=IN_TRANSFORMERS.get(activation, ""),
        tied=bool(given.get("tie_word_embeddings", True)),
        biased=GPT2_BIASED,
        end=_ends(given),
        strange=_those(
            {
                f"activation {activation}": activation not in IN_TRANSFORMERS,
                "attention without scaled scores": not given.get("scale_attn_weights", True),
                "attention scaled by the layer's number": bool(given.get("scale_attn_by_inverse_layer_idx")),
                "cross-attention": bool(given.get("add_cross_attention")),
                QUANTIZED: bool(given.get("quantization_config")),
            }
        ),
    )


def _llama(given: dict[str, Any], kind: str) -> Description:
    width, heads = int(given["hidden_size"]), int(given["num_attention_heads"])
    parameters, is_mixture = given.get("rope_parameters") or {}, kind in MIXTURES
    activation, turning = given.get("hidden_act", "silu"), rope_kind(given)
    kv_heads = given.get("num_key_value_heads", KV_HEADS.get(kind))
    window, slid = _window(given, kind)
    scaling, context = rope_scaling(given), int(given["max_position_embeddings"])
    if scaling is not None and scaling.yarn:  # which files of Qwen2 do not count in
        context = max(context, int(scaling.factor * scaling.original))
    base = given.get("rope_theta") or parameters.get("rope_theta") or (MIXTURE_BASE if is_mixture else BASE)
    return Description(
        kind=kind,
        vocab=int(given["vocab_size"]),
        layers=int(given["num_hidden_layers"]),
        width=width,
        heads=heads,
        kv_heads=int(kv_heads or heads),
        head_width=int(given.get("head_dim") or width // heads),
        hidden=int(given["intermediate_size"]),
        context=context,
        window=window,
        slid=slid,
        eps=float(given.get("rms_norm_eps", 1e-5 if is_mixture else 1e-6)),
        activation=IN_TRANSFORMERS.get(activation, ""),
        rope_base=float(base),
        rope_scaling=scaling,
        tied=bool(given.get("tie_word_embeddings", False)),
        experts=int(given["num_local_experts"]) if is_mixture else 0,
        chosen=int(given["num_experts_per_tok"]) if is_mixture else 0,
        shared_expert=int(given.get("shared_expert_intermediate_size") or 0) if kind == SHARED else 0,
        biased=_biased(given, kind),
        end=_ends(given),
        strange=_those(
            {
                f"activation {activation}": IN_TRANSFORMERS.get(activation) != "silu",
                f"rotary positions of the kind {turning}": turning not in TURNINGS,
                "rotary positions on a part of a head": float(given.get("partial_rotary_factor") or 1) != 1,
                QUANTIZED: bool(given.get("quantization_config")),
            }
        ),
    )


def _window(given: dict[str, Any], kind: str) -> tuple[int, range | frozenset[int]]:
    """Tokens that a token sees, and the layers in which it sees no others."""
    window, layers = int(given.get("sliding_window", WINDOWS.get(kind)) or 0), int(given["num_hidden_layers"])
    if kind not in WINDOWS or not window or (kind == "qwen2" and not given.get("use_sliding_window", False)):
        return 0, range(0)
    if kind != "qwen2":
        return window, range(layers)
    types = given.get("layer_types")
    if types is None:
        return window, range(max(0, int(given.get("max_window_layers", 28))), layers)
    if len(types) != layers or not set(types) <= {"full_attention", "sliding_attention"}:
        raise ValueError(f"layer_types of {layers} layers are not full_attention or sliding_attention")
    return window, frozenset(n for n, one in enumerate(types) if one == "sliding_attention")


def _biased(given: dict[str, Any], kind: str) -> frozenset[str]:
    """The maps of a Llama that add biases; its relatives have them in fixed places, whatever the file says."""
    if kind != "llama":
        return frozenset({"q", "k", "v"} if kind == "qwen2" else ())
    parts = ("q", "k", "v", "out") if given.get("attention_bias") else ()
    return frozenset(parts + (("gate", "up", "down") if given.get("mlp_bias") else ()))


def _those(wrong: dict[str, bool]) -> tuple[str, ...]:
    return tuple(what for what, is_so in wrong.items() if is_so)


def _ends(given: dict[str, Any]) -> tuple[int, ...]:
    found = given.get("eos_token_id")
    return tuple(int(token) for token in (found if isinstance(found, list) else [] if found is None else [found]))
