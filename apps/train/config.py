"""Settings of the training app, and its presets."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from hpckit.io.settings import LIMIT, InputFile, OptionalSpan, RelativeToSource, Section

SUMMARY = "neural networks on a mesh of ranks: GPT (GPT-2, Llama, Mixtral) on any text, MLP and CNN on digits"
GPU = True  # supports `hpckit run --gpu`
LANGUAGE = ("gpt2", "llama")
MOST_SCALE = 1 << 24  # of the loss


def _existing(path: Path) -> Path:
    try:
        if path.exists():
            return path
    except OSError as error:  # a name that the file system rejects
        raise ValueError(f"{error.strerror}: {str(path)[:80]} …") from None
    raise ValueError(f"there is no file or folder {path}")


Weights = Annotated[Path, RelativeToSource(), AfterValidator(_existing)]


class Model(Section):
    """The network."""

    kind: Literal["gpt2", "llama", "mlp", "cnn"] = Field(
        "gpt2", description="gpt2, llama: a language model of that architecture; mlp, cnn: an image classifier"
    )
    weights: Weights | None = Field(
        None,
        description="gpt2, llama: folder of a safetensors checkpoint (Hugging Face names) and its config.json, which"
        " sets the shape: layers to rope_base below are ignored",
    )
    layers: int = Field(4, ge=1, le=1000, description="blocks of a language model, hidden layers of an MLP")
    width: int = Field(256, ge=1, description="size of a token's vector (gpt2, llama), of a hidden layer (mlp)")
    heads: int = Field(8, ge=1, description="attention heads (gpt2, llama)")
    kv_heads: int | None = Field(None, ge=1, description="key and value heads (llama); omitted: as `heads`")
    hidden: int | None = Field(
        None,
        ge=1,
        description="width inside a block's MLP (gpt2, llama); omitted: 4 times the width (gpt2), 8/3 of it to a"
        " multiple of 32 (llama)",
    )
    activation: Literal["relu", "gelu", "gelu_erf", "silu"] | None = Field(
        None,
        description="in a block's MLP (gpt2), between the layers (mlp); gelu: GPT-2's tanh approximation; gelu_erf:"
        " the exact form; omitted: gelu (gpt2), relu (mlp)",
    )
    experts: int = Field(
        0, ge=0, le=4096, description="gated maps in each block, a mixture of experts as in Mixtral (llama); 0: one map"
    )
    top_k: int = Field(2, ge=1, description="experts that each token goes through")
    expert_balance: float = Field(
        0.01, ge=0, description="factor of the loss that shares the tokens of a batch evenly over the experts"
    )
    expert_capacity: float = Field(
        0.0,
        ge=0,
        description="of the choices of a sample an expert takes at most so many times its even share, the rest is"
        " dropped while training; 0: nothing is dropped",
    )
    router_z: float = Field(0.001, ge=0, description="factor of the loss that keeps the router's values small")
    shared_expert: int = Field(
        0, ge=0, description="hidden width of a gated map beside the experts that every token goes through; 0: none"
    )
    context: int = Field(128, ge=2, description="context length in tokens (gpt2, llama)")
    rope_base: float = Field(10_000.0, gt=1, description="base of the rotary positions (llama)")
    tied: bool | None = Field(
        None, description="first and last layer share one matrix; omitted: true for gpt2, false for llama"
    )
    dropout: float = Field(
        0.0, ge=0, lt=1, description="dropout rate after the embedding and the residual branches (gpt2)"
    )
    attention_dropout: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="dropout rate of the attention weights (gpt2, llama); omitted: as dropout",
    )
    recompute: bool | Literal["attention", "blocks", "whole"] = Field(
        False,
        description="what is worked out again in the backward pass, which saves memory and changes no bit. blocks, or"
        " true: blocks keep only their input; attention: attention does, which costs less work; whole:"
        " the stages of the pipeline do",
    )
    channels: tuple[int, ...] = Field(
        (16, 32), min_length=1, max_length=3, description="channels of the convolutions (cnn)"
    )

    @property
    def recomputed(self) -> str:
        """What is recomputed: attention, blocks, whole, or "" for nothing."""
        return ("", "blocks")[self.recompute] if isinstance(self.recompute, bool) else self.recompute

    @property
    def is_language(self) -> bool:
        """Whether this is a language model; otherwise it classifies images."""
        return self.kind in LANGUAGE

    @property
    def mlp_width(self) -> int:
        """The width inside a block's MLP."""
        return self.hidden or (4 * self.width if self.kind == "gpt2" else -(-8 * self.width // 3 // 32) * 32)

    @property
    def mlp_activation(self) -> str:
        """The activation in a GPT-2 block's MLP, or between the layers of an `mlp`."""
        return self.activation or ("relu" if self.kind == "mlp" else "gelu")

    @property
    def weights_dropout(self) -> float:
        """The dropout of the attention's weights."""
        return self.dropout if self.attention_dropout is None else self.attention_dropout

    @property
    def is_tied(self) -> bool:
        """Whether the first and the last layer share a matrix."""
        return self.kind == "gpt2" if self.tied is None else self.tied

    @model_validator(mode="after")
    def _fits(self) -> Self:
        wrong = []
        if self.is_language and self.weights is None:
            if self.width % self.heads:
                fitting = [n for n in range(1, self.width + 1) if not self.width % n]
                near = sorted(sorted(fitting, key=lambda n: abs(n - self.heads))[:3])
                wrong.append(f"{self.heads} heads do not divide a width of {self.width}: take {_or(near)} heads")
            elif self.kind == "llama" and self.width // self.heads % 2:
                wrong.append(
                    f"rotary positions rotate pairs of numbers, but a head has {self.width // self.heads}:"
                    " make width / heads even"
                )
            if self.kv_heads is not None and self.heads % self.kv_heads:
                fitting = [n for n in range(1, self.heads + 1) if not self.heads % n]
                wrong.append(f"{self.kv_heads} kv_heads do not divide {self.heads} heads: take {_or(fitting)}")
        for name, given, kinds in (
            ("weights", self.weights is not None, LANGUAGE),
            ("kv_heads", self.kv_heads is not None, ("llama",)),
            ("hidden", self.hidden is not None, LANGUAGE),
            ("experts", self.experts > 0, ("llama",)),
            ("shared_expert", self.shared_expert > 0, ("llama",)),
            ("activation", self.activation is not None, ("gpt2", "mlp")),
            ("dropout", self.dropout > 0, ("gpt2",)),
            ("attention_dropout", self.attention_dropout is not None, LANGUAGE),
            ("recompute", bool(self.recomputed), LANGUAGE),
        ):
            if given and self.kind not in kinds:
                wrong.append(f"model.{name} belongs to {_or(kinds)}, but model.kind is {self.kind!r}: omit it")
        if self.experts and self.top_k > self.experts:
            wrong.append(f"top_k is {self.top_k}, of {self.experts} experts: take 1 to {self.experts}")
        if self.shared_expert and not self.experts and self.weights is None:
            wrong.append("model.shared_expert stands beside experts: give model.experts, too")
        if min(self.channels) < 1:
            wrong.append(f"channels are {list(self.channels)}: all must be at least 1")
        if wrong:
            raise ValueError("; ".join(wrong))
        return self


class Data(Section):
    """Training data."""

    file: InputFile | None = Field(
        None, description="gpt2, llama: a text file in UTF-8; omitted: the sources of hpckit itself"
    )
    tokenizer: InputFile | None = Field(
        None, description="tokenizer.json of the package tokenizers; omitted: each byte is a token"
    )
    validation: float = Field(
        0.1, gt=0, lt=1, description="share held out for validation: the end of a text, or some of the images"
    )


class Batch(Section):
    """Samples of a step."""

    size: int = Field(8, ge=1, description="samples of a step over all ranks: windows of a text, or images")
    window: int | None = Field(
        None, ge=2, description="tokens in a sample of a language model; omitted: the model's context"
    )
    microbatches: int | None = Field(
        None,
        ge=1,
        description="parts of a replica's samples, whose gradients are summed; omitted: 1, or in a pipeline as many as"
        " divide the samples, at most 4 per rank; with batch.parts a power of two, or in a pipeline one a part",
    )

    parts: int = Field(
        0,
        ge=0,
        description="a power of two, such as 8: cut the batch into so many fixed parts and add their gradients as a"
        " tree, with the same bits for any mesh.dp, mesh.pp, sharding and schedule; 0: as is fastest",
    )

    layer_parts: int = Field(
        0,
        ge=0,
        description="with batch.parts, a power of two, such as 8: cut each layer into so many fixed parts (gpt2,"
        " llama), with the same bits for any mesh.tp, too; 0: one for each rank of tp",
    )


class Ranks(Section):
    """The mesh: how the ranks share the work; ranks of one tp or cp group are neighbors."""

    dp: int = Field(0, ge=0, description="replicas, which share the samples; 0: all ranks over pp cp tp")
    pp: int = Field(1, ge=1, description="stages of a pipeline, which share the layers")
    cp: int = Field(1, ge=1, description="ranks that share the tokens of each sample, for long windows (gpt2, llama)")
    tp: int = Field(
        1, ge=1, description="ranks that share each layer: heads, columns of matrices, vocabulary (gpt2, llama)"
    )
    ep: int = Field(
        1, ge=1, description="ranks that share the experts of each block, over the same ranks as dp, cp and tp (llama)"
    )
    etp: int = Field(
        1,
        ge=1,
        description="ranks that share the hidden numbers of each expert, as tp does of a layer; ep x etp divides"
        " dp x cp x tp (llama)",
    )


class Tensor(Section):
    """Layers on several ranks (mesh.tp)."""

    chunks: int = Field(
        1,
        ge=1,
        le=64,
        description="pieces in which the tokens of a microbatch go through a block's MLP: messages of one travel while"
        " another is multiplied, which pays between nodes",
    )


class Context(Section):
    """The tokens of a sample on several ranks (mesh.cp)."""

    kind: Literal["auto", "gather", "ring", "ulysses"] = Field(
        "auto",
        description="how attention meets the keys of other ranks: gather: all of them come first; ring: they go round"
        " while it works; ulysses: tokens change to heads, and back; auto: what is priced as quickest",
    )


class Pipeline(Section):
    """The schedule of a pipeline."""

    schedule: str | None = Field(
        None,
        description="gpipe, 1f1b, interleaved, looped_bfs, zb_h1, zb_h2, zb_v, dualpipe_v, interleaved_zb, zb_wave,"
        " or a CSV file; omitted:"
        " 1f1b, or with sharding.stage 2 or 3 and no pipeline looped_bfs with a stage for each layer",
    )
    chunks: int | None = Field(
        None, ge=1, description="stages per rank, for interleaved, looped_bfs, interleaved_zb (omitted: 2), zb_wave (4)"
    )
    paired: bool = Field(
        True,
        description="with zb_v or dualpipe_v, hide messages to experts behind another microbatch; no bit of a result"
        " changes, and `hpckit plan train` says which is quicker",
    )
    balance: Literal["measured", "arithmetic"] = Field(
        "measured",
        description="split the layers into stages of equal time, measured at the start, or of equal operations (always"
        " on GPUs)",
    )


class Sharding(Section):
    """What the replicas hold in shards (ZeRO): it changes memory and messages; without `group` no bit of a result."""

    stage: Literal[0, 1, 2, 3] = Field(
        0,
        description="0: nothing; 1: the optimizer's state; 2: and the gradients; 3: and the parameters, which within a"
        " node exist once from 1 on",
    )
    group: int = Field(
        0,
        ge=0,
        description="so many neighboring replicas hold a copy in shards, such as the ranks of a node, and others"
        " further copies (hybrid); bits are then kept with batch.parts only; 0: all replicas hold one",
    )

    @model_validator(mode="after")
    def _groups_have_shards(self) -> Self:
        if self.group and not self.stage:
            raise ValueError(f"sharding.group is {self.group} without shards: set sharding.stage to 1, 2 or 3, too")
        return self


class Mixed(Section):
    """Mixed precision: what `precision` bfloat16 or float16 means besides, and gradients in messages."""

    loss_scale: float | None = Field(
        None,
        description="factor of the loss at the start, a power of two, which float16 halves at an overflow; omitted:"
        " 65536 for float16, else 1",
    )
    growth: int = Field(2000, ge=0, description="steps without an overflow that double it (float16); 0: it stays")
    gradients: Literal["bfloat16", "float16"] | None = Field(
        None,
        description="how gradients go between replicas, in any precision but float64: half the bytes; sums are float32,"
        " rounded once, or with batch.parts at each node of their tree; omitted: as float32",
    )

    @field_validator("loss_scale")
    @classmethod
    def _is_power(cls, value: float | None) -> float | None:
        if value is not None and (not 1 <= value <= MOST_SCALE or math.frexp(value)[0] != 0.5):
            raise ValueError(f"{value:g} is not a power of two from 1 to {MOST_SCALE}")
        return value


class Optimizer(Section):
    """The optimizer."""

    kind: Literal["adamw", "sgd"] = Field("adamw", description="AdamW, or SGD with momentum")
    lr: float = Field(1e-3, gt=0, description="peak learning rate")
    warmup: int | None = Field(
        None,
        ge=0,
        description="steps over which the learning rate grows to its peak; omitted: 20, at most a fifth of all steps",
    )
    floor: float = Field(0.1, ge=0, le=1, description="final learning rate over its peak (cosine decay); 1: constant")
    betas: tuple[float, float] = Field((0.9, 0.95), description="decay rates of the moments (adamw)")
    eps: float = Field(1e-8, gt=0, description="added to the square root (adamw)")
    weight_decay: float = Field(0.1, ge=0, description="weight decay of matrices; vectors do not decay")
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum (sgd)")
    clip: float = Field(1.0, ge=0, description="maximum norm of the gradient; 0: no limit")

    @model_validator(mode="after")
    def _betas_decay(self) -> Self:
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas are {list(self.betas)}: both must be at least 0 and below 1")
        return self


class Time(Section):
    """Duration."""

    steps: int = Field(200, ge=1, description="steps of the optimizer")
    limit: OptionalSpan = Field("", description=LIMIT)
    monitor: int = Field(1, ge=1, description="steps between metric lines")
    validate_every: int = Field(50, ge=0, description="steps between validations; 0: only at the end")
    validate_samples: int | None = Field(
        None,
        ge=1,
        description="most samples of a validation, the same at each; omitted: 64 windows of a text, all images",
    )


class Sample(Section):
    """The text that a language model writes at the end."""

    tokens: int = Field(200, ge=0, description="number of tokens; 0: none")
    prompt: str = Field("\n", min_length=1, description="text to continue")
    temperature: float = Field(0.8, ge=0, description="sampling temperature; 0: always the likeliest token")
    top_k: int = Field(40, ge=0, description="choose among this many of the likeliest tokens; 0: all")


class Config(Section):
    """All settings of a run."""

    app: Literal["train"] = "train"
    model: Model = Field(default_factory=Model, description="the network")
    data: Data = Field(default_factory=Data, description="training data")
    batch: Batch = Field(default_factory=Batch, description="samples of a step")
    mesh: Ranks = Field(default_factory=Ranks, description="how the ranks share the work")
    tensor: Tensor = Field(default_factory=Tensor, description="layers on several ranks")
    context: Context = Field(default_factory=Context, description="samples on several ranks")
    pipeline: Pipeline = Field(default_factory=Pipeline, description="schedule of a pipeline")
    sharding: Sharding = Field(default_factory=Sharding, description="what the replicas hold in shards")
    optimizer: Optimizer = Field(default_factory=Optimizer, description="optimizer")
    time: Time = Field(default_factory=Time, description="duration")
    sample: Sample = Field(default_factory=Sample, description="the text that a language model writes at the end")
    precision: Literal["float32", "float64", "bfloat16", "float16"] = Field(
        "float32",
        description="of all numbers; bfloat16, float16: weights and activations are held in 16 bits, sums and the"
        " optimizer's values in float32",
    )
    mixed: Mixed = Field(default_factory=Mixed, description="mixed precision: the loss's scale, gradients")
    seed: int = Field(
        1, ge=0, le=2**31 - 1, description="random seed of initial weights, data order, dropout and sampling"
    )

    @property
    def arithmetic(self) -> str:
        """The dtype in which is computed."""
        return "float32" if self.storage else self.precision

    @property
    def storage(self) -> str:
        """The kind of 16 bits in which weights and activations are held, "" for none."""
        return self.precision if self.precision in ("bfloat16", "float16") else ""

    @property
    def gradient_bytes(self) -> int:
        """Bytes of a gradient on the way to other replicas."""
        return 2 if self.mixed.gradients else 8 if self.precision == "float64" else 4

    @property
    def warmup(self) -> int:
        """Steps over which the learning rate grows."""
        given = self.optimizer.warmup
        return min(20, self.time.steps // 5) if given is None else given

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        wrong = []
        if not self.model.is_language:
            wrong += [
                f"data.{name} is for language models, but model.kind is {self.model.kind!r}: omit it"
                for name in ("file", "tokenizer")
                if getattr(self.data, name) is not None
            ]
            if self.batch.window is not None:
                wrong.append(f"batch.window is for language models, but model.kind is {self.model.kind!r}")
        elif self.model.weights is None and self.batch.window is not None and self.batch.window > self.model.context:
            wrong.append(
                f"batch.window is {self.batch.window}, and model.context is {self.model.context} tokens: shorten"
                " the window, or lengthen the context"
            )
        short = self.mixed.gradients
        if short and self.precision == "float64":
            wrong.append(f"mixed.gradients is {short}, and precision float64: omit it, or take float32")
        if short == "float16" and self.precision != "float16":
            wrong.append(
                "gradients in float16 need a loss that is scaled: set mixed.gradients to bfloat16, or precision to"
                " float16"
            )
        if 1 < self.time.steps <= (self.optimizer.warmup or 0):
            wrong.append(
                f"optimizer.warmup is {self.optimizer.warmup} of {self.time.steps} steps: make it shorter than the run"
            )
        if wrong:
            raise ValueError("; ".join(wrong))
        return self


def _or(values: Any) -> str:
    """`a, b or c`."""
    *most, last = map(str, values)
    return f"{', '.join(most)} or {last}" if most else last


def device_problems(config: Config, gpu: bool) -> Iterator[str]:
    """Settings that a GPU does not support."""
    given = {
        "mesh.tp": config.mesh.tp > 1,
        "mesh.cp": config.mesh.cp > 1,
        "mesh.etp": config.mesh.etp > 1,
        "batch.layer_parts": config.batch.layer_parts,
    }
    if gpu and any(given.values()):
        names = _or([name for name, there in given.items() if there])
        yield f"{names} share a layer or a sample among ranks of the host: omit it, or --gpu"


PRESETS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt": (
        "a GPT-2 shaped network of 3 million parameters learns to write the sources of hpckit, or data.file=…",
        {},
    ),
    "llama": (
        "the same, Llama shaped: rotary positions, RMSNorm, SwiGLU, grouped-query attention",
        {"model": {"kind": "llama", "kv_heads": 4}},
    ),
    "moe": (
        "a mixture of experts in the shape of Mixtral: each token goes through 2 of 8 gated maps",
        {"model": {"kind": "llama", "kv_heads": 4, "experts": 8, "hidden": 352}},
    ),
    "digits": (
        "a convolution network learns to read handwritten digits",
        {
            "model": {"kind": "cnn"},
            "batch": {"size": 64},
            "time": {"steps": 300, "validate_every": 50},
            "optimizer": {"lr": 4e-3},
        },
    ),
    "digits_mlp": (
        "a multilayer perceptron learns the same",
        {
            "model": {"kind": "mlp", "layers": 2, "width": 128},
            "batch": {"size": 64},
            "time": {"steps": 300, "validate_every": 50},
            "optimizer": {"lr": 2e-3},
        },
    ),
}
