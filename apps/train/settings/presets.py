"""The presets of the training app."""

from __future__ import annotations

from typing import Any

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
