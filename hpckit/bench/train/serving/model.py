"""A Llama shape of 200 million random parameters as a Hugging Face folder, and the times of its engine."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from hpckit.io.safetensors import Safetensors, save_safetensors
from hpckit.kernels.compile.jit import jit
from hpckit.serving.checkpoint.gguf import LLAMA, WHOLE
from hpckit.serving.engine import Engine
from hpckit.serving.sampler import Sampling

SHAPE: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 32000,
    "hidden_size": 1024,
    "num_hidden_layers": 12,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "intermediate_size": 2816,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "bos_token_id": None,
    "eos_token_id": None,
}


def write(folder: Path, layers: int) -> Path:
    """The model with so many layers; returns its folder."""
    shape = {**SHAPE, "num_hidden_layers": layers}
    width, hidden, vocab = shape["hidden_size"], shape["intermediate_size"], shape["vocab_size"]
    kept = width // 4
    sizes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab, width), "lm_head.weight": (vocab, width)}
    sizes["model.norm.weight"] = (width,)
    for i in range(layers):
        own = {
            "input_layernorm": (width,),
            "self_attn.q_proj": (width, width),
            "self_attn.k_proj": (kept, width),
            "self_attn.v_proj": (kept, width),
            "self_attn.o_proj": (width, width),
            "post_attention_layernorm": (width,),
            "mlp.gate_proj": (hidden, width),
            "mlp.up_proj": (hidden, width),
            "mlp.down_proj": (width, hidden),
        }
        sizes |= {f"model.layers.{i}.{name}.weight": size for name, size in own.items()}
    random = np.random.default_rng(0)
    tensors = {
        name: random.standard_normal(size, np.float32) * np.float32(0.05)
        if len(size) == 2
        else np.ones(size, np.float32)
        for name, size in sizes.items()
    }
    folder.mkdir(parents=True, exist_ok=True)
    save_safetensors(folder / "model.safetensors", tensors, {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(shape), encoding="utf-8")
    return folder


def tokens(count: int, seed: int = 0) -> list[int]:
    """Random tokens."""
    return np.random.default_rng(seed).integers(0, SHAPE["vocab_size"], count).tolist()


def each_seconds(engine: Engine, count: int, prompt: int = 8) -> list[float]:
    """Seconds of each token, of `count` that follow the first one; this rank is rank 0."""
    engine.add(tokens(prompt), Sampling(max_tokens=count + 1, ignore_end=True))
    engine.step()
    found = []
    while not engine.idle:
        begin = time.perf_counter()
        engine.step()
        found.append(time.perf_counter() - begin)
    return found


def decode_seconds(engine: Engine, count: int, prompt: int = 8) -> float:
    """The mean of `each_seconds`."""
    return sum(each_seconds(engine, count, prompt)) / count


def first_seconds(engine: Engine, prompt: list[int]) -> float:
    """Seconds to the first token."""
    engine.add(prompt, Sampling(max_tokens=1, ignore_end=True))
    begin = time.perf_counter()
    while not engine.idle:
        engine.step()
    return time.perf_counter() - begin


def panels(engine: Engine) -> list[Any]:
    """The memory that a token reads, as words."""
    every = [engine.weights.head] if engine.weights.head else []
    for block in engine.weights.blocks:
        every += [block.qkv, block.out, *(each for feed in block.feeds for each in feed)]
    return [matrix.packed.panels.reshape(-1).view(np.uint64) for matrix in every]


def read_seconds(words: list[Any]) -> float:
    """Seconds to read all of it."""
    begin = time.perf_counter()
    total = sum(int(_ored(one)) for one in words)
    assert total >= 0
    return time.perf_counter() - begin


def write_gguf(path: Path, folder: Path, storage: str) -> Path:
    """The model of a folder as a GGUF file, with matrices of that type (F32, BF16, Q8_0); returns its path."""
    import gguf

    shape = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    vocab, heads = shape["vocab_size"], shape["num_attention_heads"]
    it = gguf.GGUFWriter(path, "llama")
    it.add_context_length(shape["max_position_embeddings"])
    it.add_embedding_length(shape["hidden_size"])
    it.add_block_count(shape["num_hidden_layers"])
    it.add_head_count(heads)
    it.add_head_count_kv(shape["num_key_value_heads"])
    it.add_feed_forward_length(shape["intermediate_size"])
    it.add_layer_norm_rms_eps(shape["rms_norm_eps"])
    it.add_rope_freq_base(shape["rope_theta"])
    it.add_rope_dimension_count(shape["hidden_size"] // heads)
    it.add_file_type(gguf.LlamaFileType[f"{'ALL' if storage == 'F32' else 'MOSTLY'}_{storage}"])
    it.add_tokenizer_model("gpt2")  # the one that OpenVINO reads
    it.add_tokenizer_pre("llama-bpe")
    it.add_token_merges(["a b"])
    it.add_token_list(["a", "b", "ab", *(f"w{n:05d}" for n in range(3, vocab))])
    it.add_token_types([2, 3, 3, *[1] * (vocab - 3)])
    for mark, add in enumerate((it.add_unk_token_id, it.add_bos_token_id, it.add_eos_token_id, it.add_pad_token_id)):
        add(mark)
    it.add_add_bos_token(False)
    theirs = {ours: name for name, ours in (LLAMA | WHOLE["llama"]).items()}
    for name, tensor in Safetensors(folder).items():
        rows = np.array(tensor, np.float32)
        stem, _, ending = name.rpartition(".")
        number, _, part = stem.removeprefix("model.layers.").partition(".")
        if number.isdigit():
            if part in ("self_attn.q_proj", "self_attn.k_proj"):  # the pairs that turn together stand side by side
                own = heads if "q_proj" in part else shape["num_key_value_heads"]
                rows = rows.reshape(own, 2, -1, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)
            full = f"blk.{number}.{theirs[part]}.{ending}"
        else:
            full = f"{theirs[stem]}.{ending}"
        kind = gguf.GGMLQuantizationType["F32" if rows.ndim == 1 else storage]
        it.add_tensor(full, gguf.quants.quantize(np.ascontiguousarray(rows), kind), raw_dtype=kind)
    for write_out in (it.write_header_to_file, it.write_kv_data_to_file, it.write_tensors_to_file, it.close):
        write_out()
    return path


@jit
def _ored(words):
    total = np.uint64(0)
    for i in range(len(words)):
        total |= words[i]
    return total
