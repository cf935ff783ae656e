"""Small models with random weights, in the files of Hugging Face, and what transformers makes of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from hpckit.io.safetensors import save_safetensors

COMMON = {"vocab_size": 61, "initializer_range": 0.2}
SMALL = {
    **COMMON,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "intermediate_size": 36,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
CONFIGS = {
    "gpt2": {**COMMON, "n_layer": 2, "n_embd": 24, "n_head": 3, "n_positions": 256, "model_type": "gpt2"},
    "llama": {**SMALL, "model_type": "llama", "rope_theta": 10000.0},
    "llama3": {
        **SMALL,
        "model_type": "llama",
        "rope_theta": 500000.0,
        "rope_scaling": {**LLAMA3, "original_max_position_embeddings": 64},
        "tie_word_embeddings": True,
    },
    "mistral": {**SMALL, "model_type": "mistral", "head_dim": 10, "sliding_window": 21},
    "qwen2": {**SMALL, "model_type": "qwen2", "use_sliding_window": False},
    "slid": {**SMALL, "model_type": "qwen2", "use_sliding_window": True, "sliding_window": 30, "max_window_layers": 1},
    "biased": {**SMALL, "model_type": "llama", "attention_bias": True, "mlp_bias": True, "rope_scaling": YARN},
    "mixtral": {**SMALL, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2},
}


def shapes(config: dict) -> dict[str, tuple[int, ...]]:
    """The tensors of a checkpoint, by their names in its files."""
    if config["model_type"] == "gpt2":
        width, vocab = config["n_embd"], config["vocab_size"]
        found = {"transformer.wte.weight": (vocab, width), "transformer.wpe.weight": (config["n_positions"], width)}
        for i in range(config["n_layer"]):
            for name, sizes in {
                "ln_1": (width,),
                "attn.c_attn": (width, 3 * width),
                "attn.c_proj": (width, width),
                "ln_2": (width,),
                "mlp.c_fc": (width, 4 * width),
                "mlp.c_proj": (4 * width, width),
            }.items():
                found[f"transformer.h.{i}.{name}.weight"] = sizes
                found[f"transformer.h.{i}.{name}.bias"] = sizes[-1:]
        return found | {f"transformer.ln_f.{part}": (width,) for part in ("weight", "bias")}
    width, hidden = config["hidden_size"], config["intermediate_size"]
    each = config.get("head_dim", width // config["num_attention_heads"])
    mixed, kept = config["num_attention_heads"] * each, config["num_key_value_heads"] * each
    found = {"model.embed_tokens.weight": (config["vocab_size"], width), "model.norm.weight": (width,)}
    if not config["tie_word_embeddings"]:
        found["lm_head.weight"] = (config["vocab_size"], width)
    for i in range(config["num_hidden_layers"]):
        block = f"model.layers.{i}."
        found |= {block + name + ".weight": (width,) for name in ("input_layernorm", "post_attention_layernorm")}
        for letter, columns in (("q", mixed), ("k", kept), ("v", kept)):
            found[f"{block}self_attn.{letter}_proj.weight"] = (columns, width)
            if config["model_type"] == "qwen2":
                found[f"{block}self_attn.{letter}_proj.bias"] = (columns,)
            if config.get("attention_bias"):
                found[f"{block}self_attn.{letter}_proj.bias"] = (columns,)
        found[block + "self_attn.o_proj.weight"] = (width, mixed)
        if config.get("attention_bias"):
            found[block + "self_attn.o_proj.bias"] = (width,)
        experts = config.get("num_local_experts", 0)
        if experts:
            found[block + "block_sparse_moe.gate.weight"] = (experts, width)
        for e in range(experts):
            for name, sizes in (("w1", (hidden, width)), ("w3", (hidden, width)), ("w2", (width, hidden))):
                found[f"{block}block_sparse_moe.experts.{e}.{name}.weight"] = sizes
        if not experts:
            for name, sizes in (("gate", (hidden, width)), ("up", (hidden, width)), ("down", (width, hidden))):
                found[f"{block}mlp.{name}_proj.weight"] = sizes
                if config.get("mlp_bias"):
                    found[f"{block}mlp.{name}_proj.bias"] = sizes[:1]
    return found


def write_model(folder: Path, kind: str, seed: int = 0, **changed: object) -> Path:
    """A checkpoint of a kind of CONFIGS with random weights; returns its folder."""
    config = {**CONFIGS[kind], **changed}
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    tensors = {}
    for name, sizes in shapes(config).items():
        around = 1.0 if len(sizes) == 1 and name.endswith("weight") else 0.0
        scale = 1.0 if "embed" in name or "wte" in name else 0.35
        tensors[name] = (around + scale * random.standard_normal(sizes)).astype(np.float32)
    save_safetensors(folder / "model.safetensors", tensors, {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    return folder
