"""Settings of the optimization: the optimizer, mixed precision, how many steps."""

from __future__ import annotations

import math
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from hpckit.io.settings import LIMIT, OptionalSpan, Section

MOST_SCALE = 1 << 24  # of the loss


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
