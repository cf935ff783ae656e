"""Settings of the network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from hpckit.io.settings import RelativeToSource, Section

LANGUAGE = ("gpt2", "llama")


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
                wrong.append(f"{self.heads} heads do not divide a width of {self.width}: take {either(near)} heads")
            elif self.kind == "llama" and self.width // self.heads % 2:
                wrong.append(
                    f"rotary positions rotate pairs of numbers, but a head has {self.width // self.heads}:"
                    " make width / heads even"
                )
            if self.kv_heads is not None and self.heads % self.kv_heads:
                fitting = [n for n in range(1, self.heads + 1) if not self.heads % n]
                wrong.append(f"{self.kv_heads} kv_heads do not divide {self.heads} heads: take {either(fitting)}")
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
                wrong.append(f"model.{name} belongs to {either(kinds)}, but model.kind is {self.kind!r}: omit it")
        if self.experts and self.top_k > self.experts:
            wrong.append(f"top_k is {self.top_k}, of {self.experts} experts: take 1 to {self.experts}")
        if self.shared_expert and not self.experts and self.weights is None:
            wrong.append("model.shared_expert stands beside experts: give model.experts, too")
        if min(self.channels) < 1:
            wrong.append(f"channels are {list(self.channels)}: all must be at least 1")
        if wrong:
            raise ValueError("; ".join(wrong))
        return self


def either(values: Any) -> str:
    """The values as text, `a, b or c`."""
    *most, last = map(str, values)
    return f"{', '.join(most)} or {last}" if most else last
