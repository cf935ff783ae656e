"""The sizes of a language model, by name or from a config.json of transformers: its matrices, parameters, FLOPs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from hpckit.errors import InputError, nearest
from hpckit.plan.inputs.text import parse_json, read_bytes

CONFIG = "config.json"
DECODERS = "ForCausalLM", "LMHeadModel", "ForConditionalGeneration"  # how architectures are named that are planned
COUNTS = "n_routed_experts", "num_local_experts", "num_experts"  # of the experts of a block
EVERY = "decoder_sparse_step", "moe_layer_freq", "interleave_moe_layer_step"  # one in so many blocks has experts


class Matrix(NamedTuple):
    """A matrix of a block, applied to every token. split: which of its dims the ranks of `tp` share."""

    inputs: int
    outputs: int
    split: Literal["outputs", "inputs", "none"]


@dataclass(frozen=True)
class ExpertSizes:
    """The experts of a block: `count` of them, of which a token takes `active`, and `shared`, which every token takes.

    hidden: the width inside an expert. first: the blocks before it are dense.
    """

    count: int
    active: int
    hidden: int
    shared: int = 0
    first: int = 0


@dataclass(frozen=True)
class Latent:
    """Attention through small vectors (DeepSeek-V2, arXiv:2405.04434): the ranks of queries (0: none) and of keys with
    values, and the width of the rotary part, which all heads share.
    """

    queries: int
    keys: int
    rotary: int


@dataclass(frozen=True)
class LanguageModel:
    """A decoder-only transformer.

    hidden: width inside a dense block's MLP. gated: a third matrix there (SwiGLU). head: width of a head's queries;
    value: of its values. tied: embedding and head share a matrix. positions: trained vectors of positions. biases: of
    all matrices, and of the norms. dropout: whether it drops.
    """

    name: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    hidden: int
    vocab: int
    context: int
    head: int
    value: int
    gated: bool = True
    tied: bool = False
    positions: int = 0
    biases: bool = False
    dropout: bool = False
    experts: ExpertSizes | None = None
    latent: Latent | None = None

    def attention(self) -> list[Matrix]:
        """The matrices of a block's attention."""
        h, out = self.width, Matrix(self.heads * self.value, self.width, "inputs")
        if self.latent is None:
            return [Matrix(h, self.heads * self.head + self.kv_heads * (self.head + self.value), "outputs"), out]
        q, kv, rotary = self.latent.queries, self.latent.keys, self.latent.rotary
        wide = self.heads * self.head
        queries = [Matrix(h, q, "none"), Matrix(q, wide, "outputs")] if q else [Matrix(h, wide, "outputs")]
        keys = self.heads * (self.head - rotary + self.value)
        return [*queries, Matrix(h, kv + rotary, "none"), Matrix(kv, keys, "outputs"), out]

    def mlp(self, hidden: int) -> list[Matrix]:
        """The matrices of an MLP of that width."""
        up = Matrix(self.width, hidden * (2 if self.gated else 1), "outputs")
        return [up, Matrix(hidden, self.width, "inputs")]

    @property
    def dense_layers(self) -> int:
        """Blocks without experts."""
        return self.layers if self.experts is None else self.experts.first

    @property
    def vectors(self) -> int:
        """Parameters of a block other than matrices: norms and biases."""
        if not self.biases:
            return 2 * self.width
        return 4 * self.width + sum(m.outputs for m in [*self.attention(), *self.mlp(self.hidden)])

    @property
    def common(self) -> float:
        """Parameters of a block with experts that all its ranks use: attention, router, shared experts."""
        it = self.experts
        assert it is not None
        shared = size(self.mlp(it.shared * it.hidden)) if it.shared else 0
        return size(self.attention()) + self.vectors + shared + self.width * it.count

    @property
    def dense(self) -> float:
        """Parameters of a block without experts."""
        return size(self.attention()) + size(self.mlp(self.hidden)) + self.vectors

    @property
    def embedding(self) -> float:
        """Parameters of the embedding, with the positions; the head has `vocab * width` of its own unless tied."""
        return float((self.vocab + self.positions) * self.width)

    @property
    def parameters(self) -> float:
        """All parameters, without the last norm."""
        blocks = self.dense_layers * self.dense
        if self.experts is not None:
            each = size(self.mlp(self.experts.hidden))
            blocks += (self.layers - self.dense_layers) * (self.common + self.experts.count * each)
        return blocks + self.embedding + (0 if self.tied else self.vocab * self.width)

    @property
    def active(self) -> float:
        """Entries of the matrices that a token meets, those of the head among them."""
        blocks = self.dense_layers * (size(self.attention()) + size(self.mlp(self.hidden)))
        if self.experts is not None:
            it = self.experts
            each = size(self.attention()) + size(self.mlp(it.hidden)) * (it.active + it.shared) + self.width * it.count
            blocks += (self.layers - self.dense_layers) * each
        return blocks + self.vocab * self.width

    def flops(self, context: int, causal: bool = True) -> float:
        """Floating-point operations of a token forward and backward: 6 for each multiply-add of the forward pass.

        causal: of the attention only the half that the mask leaves is counted.
        """
        scores = context * self.heads * (self.head + self.value) * (0.5 if causal else 1.0)
        return 6.0 * (self.active + self.layers * scores)


def size(matrices: list[Matrix]) -> float:
    """Entries of some matrices."""
    return float(sum(it.inputs * it.outputs for it in matrices))


def _gpt(layers: int, width: int, heads: int, vocab: int = 51200, context: int = 2048) -> dict[str, Any]:
    return {
        "model_type": "gpt2",
        "n_layer": layers,
        "n_embd": width,
        "n_head": heads,
        "vocab_size": vocab,
        "n_positions": context,
    }


def _llama(layers: int, width: int, heads: int, hidden: int, context: int = 8192) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "num_hidden_layers": layers,
        "hidden_size": width,
        "num_attention_heads": heads,
        "num_key_value_heads": 8,
        "intermediate_size": hidden,
        "vocab_size": 128256,
        "max_position_embeddings": context,
    }


# Published sizes, in the words of transformers: Brown et al. 2020; Llama team, DeepSeek-AI, Jiang et al. 2024.
NAMED: dict[str, dict[str, Any]] = {
    "gpt2-1.5b": _gpt(48, 1600, 25, 50257, 1024),
    "gpt3-175b": _gpt(96, 12288, 96),
    "megatron-1t": _gpt(128, 25600, 160),
    "llama3-8b": _llama(32, 4096, 32, 14336),
    "llama3-70b": _llama(80, 8192, 64, 28672),
    "llama3-405b": _llama(126, 16384, 128, 53248),
    "mixtral-8x7b": _llama(32, 4096, 32, 14336, 32768)
    | {"model_type": "mixtral", "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2},
    "deepseek-v3": {
        "model_type": "deepseek_v3",
        "num_hidden_layers": 61,
        "hidden_size": 7168,
        "num_attention_heads": 128,
        "num_key_value_heads": 128,
        "intermediate_size": 18432,
        "vocab_size": 129280,
        "max_position_embeddings": 4096,
        "n_routed_experts": 256,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 2048,
        "n_shared_experts": 1,
        "first_k_dense_replace": 3,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
    },
}


def language_model(given: str | Path) -> LanguageModel:
    """A model by its name in `NAMED`, or from a config.json of transformers (the file, or its folder).

    Raises `InputError` for an unknown name, and for a file that describes no transformer.
    """
    text = str(given)
    if text.lower() in NAMED:
        return model_from(NAMED[text.lower()], text.lower())
    path = Path(text)
    path = path / CONFIG if path.is_dir() else path
    if not path.exists():
        near = nearest(text.lower(), NAMED)
        do = f"give one of {', '.join(NAMED)}, a preset of the train app as train/gpt, or a config.json"
        raise InputError(f"there is no model {text!r}", do=f"did you mean {near}? {do}" if near else do)
    try:
        found = parse_json(read_bytes(path, "the description of the model"))
    except ValueError as error:
        raise InputError(f"it is not JSON: {error}", where=str(path)) from None
    if not isinstance(found, Mapping):
        raise InputError("it describes no model", where=str(path), do="give a config.json of transformers")
    return model_from(found, path.parent.name or path.stem, str(path))


def model_from(given: Mapping[str, Any], name: str, where: str = "") -> LanguageModel:
    """The model that the keys of a config.json describe, of one for text and images its part for text.

    Raises `InputError` with all that is missing or impossible.
    """
    if isinstance(given.get("text_config"), Mapping):
        given = given["text_config"]
    faults: list[str] = []
    kinds = given.get("architectures")
    if isinstance(kinds, list) and kinds and not any(str(kind).endswith(DECODERS) for kind in kinds):
        faults.append(f"{', '.join(map(str, kinds))} is not a decoder of text")

    def number(*keys: str, default: int | None = None, least: int = 1) -> int:
        value = next((given[key] for key in keys if given.get(key) is not None), default)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            said = "is missing" if value is None else f"is {value!r}, not a whole number of {least} or more"
            faults.append(f"{' or '.join(keys)} {said}")
            return least or 1
        return value

    old = str(given.get("model_type")) in ("gpt2", "gpt_neox", "opt", "bloom")
    width, heads = number("hidden_size", "n_embd"), number("num_attention_heads", "n_head")
    if width % heads and "head_dim" not in given:
        faults.append(f"{heads} heads do not divide a width of {width}")
    latent = None
    head = value = number("head_dim", default=max(width // heads, 1))
    if given.get("kv_lora_rank"):
        rotary = number("qk_rope_head_dim")
        latent = Latent(number("q_lora_rank", default=0, least=0), number("kv_lora_rank"), rotary)
        head, value = number("qk_nope_head_dim") + rotary, number("v_head_dim")
    kv_heads = number("num_key_value_heads", default=heads)
    if heads % kv_heads:
        faults.append(f"{kv_heads} key and value heads do not divide {heads} heads")
    experts = None
    if any(given.get(key) for key in COUNTS):
        inside = number("moe_intermediate_size", "intermediate_size")
        beside = number("shared_expert_intermediate_size", default=0, least=0)
        shared = number("n_shared_experts", default=-(-beside // inside), least=0)
        first = number("first_k_dense_replace", default=0, least=0)
        experts = ExpertSizes(number(*COUNTS), number("num_experts_per_tok"), inside, shared, first)
        if beside % inside:
            faults.append(f"a shared expert of {beside} is not a multiple of an expert's {inside}")
        apart = [key for key in EVERY if given.get(key) not in (None, 1)]
        if given.get("mlp_only_layers") or apart:
            faults.append(f"only some blocks have experts ({', '.join(apart or ['mlp_only_layers'])})")
    context = number("max_position_embeddings", "n_positions")
    found = LanguageModel(
        name=name,
        layers=number("num_hidden_layers", "n_layer"),
        width=width,
        heads=heads,
        kv_heads=kv_heads,
        hidden=number("intermediate_size", "n_inner", default=4 * width if old else None),
        vocab=number("vocab_size"),
        context=context,
        head=head,
        value=value,
        gated=not old,
        tied=bool(given.get("tie_word_embeddings", old)),
        positions=context if old else 0,
        biases=old,
        dropout=old and bool(given.get("resid_pdrop", 0.1)),
        experts=experts,
        latent=latent,
    )
    if experts is not None and experts.active > experts.count:
        faults.append(f"a token takes {experts.active} of {experts.count} experts")
    if experts is not None and experts.first > found.layers:
        faults.append(f"{experts.first} dense blocks of {found.layers}")
    if faults:
        raise InputError("the model is not described: " + "; ".join(faults), where=where, do="mend its config.json")
    return found
