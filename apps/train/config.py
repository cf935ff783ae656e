"""Settings of the training app, and its presets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from hpckit.apps.common.settings import CheckedTogether
from hpckit.apps.train.settings.mesh import Context, Pipeline, Ranks, Sharding, Tensor
from hpckit.apps.train.settings.network import Model
from hpckit.apps.train.settings.optimization import Mixed, Optimizer, Time
from hpckit.apps.train.settings.samples import Batch, Data, Sample

SUMMARY = "neural networks on a mesh of ranks: GPT (GPT-2, Llama, Mixtral) on any text, MLP and CNN on digits"
GPU = True  # supports `hpckit run --gpu`


class Config(CheckedTogether):
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
        """The dtype of all arithmetic."""
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

    def problems(self) -> Iterator[str]:
        """Settings that contradict each other."""
        if not self.model.is_language:
            for name in ("file", "tokenizer"):
                if getattr(self.data, name) is not None:
                    yield f"data.{name} is for language models, but model.kind is {self.model.kind!r}: omit it"
            if self.batch.window is not None:
                yield f"batch.window is for language models, but model.kind is {self.model.kind!r}"
        elif self.model.weights is None and self.batch.window is not None and self.batch.window > self.model.context:
            yield (
                f"batch.window is {self.batch.window}, and model.context is {self.model.context} tokens: shorten"
                " the window, or lengthen the context"
            )
        short = self.mixed.gradients
        if short and self.precision == "float64":
            yield f"mixed.gradients is {short}, and precision float64: omit it, or take float32"
        if short == "float16" and self.precision != "float16":
            yield (
                "gradients in float16 need a loss that is scaled: set mixed.gradients to bfloat16, or precision to"
                " float16"
            )
        if 1 < self.time.steps <= (self.optimizer.warmup or 0):
            yield (
                f"optimizer.warmup is {self.optimizer.warmup} of {self.time.steps} steps: make it shorter than the run"
            )


def device_problems(config: Config, gpu: bool) -> Iterator[str]:
    """Settings that a GPU does not support."""
    if gpu and config.mesh.cp > 1:
        yield "mesh.cp shares samples among ranks of the host: omit it, or --gpu"


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
