"""GGUF files (llama.cpp's) as checkpoints: their description as a config.json, their tensors by transformers' names.

The package gguf reads the file through a memory map, and widens every type of number it knows; blocks of Q8_0 and Q4_0
keep their values to the bit when they are packed again, as the largest number of a block says its scale.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hpckit.errors import CorruptDataError, InputError, SetupError
from hpckit.io.config_json import fault_of
from hpckit.plan.inputs.text import read_bytes
from hpckit.serving.checkpoint.vocabulary import ends_in

SUFFIX = ".gguf"
KINDS = {"F32": "float32", "F16": "float32", "BF16": "bfloat16", "Q4_0": "q4_0"}  # others are packed as q8_0
# Of transformers: a block's parts, by those of GGUF.
LLAMA = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "block_sparse_moe.gate",
}
EXPERTS = {"ffn_gate_exps": "w1", "ffn_up_exps": "w3", "ffn_down_exps": "w2"}
GPT2 = {
    "attn_norm": "ln_1",
    "attn_qkv": "attn.c_attn",
    "attn_output": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn_up": "mlp.c_fc",
    "ffn_down": "mlp.c_proj",
}
WHOLE = {
    "llama": {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"},
    "gpt2": {
        "token_embd": "transformer.wte",
        "position_embd": "transformer.wpe",
        "output_norm": "transformer.ln_f",
        "output": "lm_head",
    },
}
FACTORS = "rope_freqs.weight"  # by which the speeds of rotary positions are divided
UNKNOWN = {"attn_factor": 1.0, "yarn_ext_factor": 1.0, "yarn_log_multiplier": 0.0}  # of their scaling: what is read


class _Place(NamedTuple):
    """Where a tensor of transformers' name is: the tensor of the file, its expert, and what is done to it."""

    name: str
    expert: int | None = None
    paired: bool = False  # rows of a head stand in pairs that turn together
    turned: bool = False  # GPT-2's matrices are [inputs, outputs]


class Gguf(Mapping[str, np.ndarray]):
    """The tensors of a GGUF file by the names of Hugging Face folders, float32, each read when it is asked for.

    `config`: what its config.json would say. `metadata`: the file's own. Raises `SetupError` without the package gguf,
    `InputError` for another kind of file or model, `CorruptDataError` if it is cut off.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            import gguf
        except ImportError:
            raise SetupError(
                f"{self.path.name} needs the package gguf",
                likely="it is not installed",
                do="pip install 'hpckit[gguf]'",
            ) from None
        if read_bytes(self.path, "the model", 4, "give a GGUF file", whole=False) != b"GGUF":
            raise InputError(f"{self.path} is not a GGUF file", do="give one that llama.cpp reads")
        told = self.path.stat()
        tensors, self.metadata = _parsed(self.path, told.st_size, told.st_mtime_ns)
        self._widened = functools.lru_cache(maxsize=4)(self._read)  # a matrix is asked for by pieces
        self._dequantize = gguf.quants.dequantize
        self._tensors = {tensor.name: tensor for tensor in tensors}
        self.config = self._config()
        self._places = self._named()

    def __getitem__(self, name: str) -> np.ndarray:
        """The tensor, float32."""
        place = self._places[name]
        found = self._widened(place.name, place.expert)
        if place.paired:
            found = _unpaired(found, self._head)
        return found.T if place.turned else found

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, without reading it."""
        place = self._places[name]
        sizes = tuple(int(size) for size in self._tensors[place.name].shape[::-1])
        sizes = sizes if place.expert is None else sizes[1:]
        return sizes[::-1] if place.turned else sizes

    def packed_as(self, name: str) -> str:
        """The kind of the tile that has the values of a tensor, or, of other quantized ones, nearly."""
        return KINDS.get(self._tensors[self._places[name].name].tensor_type.name, "q8_0")

    def rows(self, name: str, numbers: npt.NDArray[np.integer]) -> npt.NDArray[np.float32]:
        """Some rows of a table, float32; only they are read."""
        tensor = self._tensors[self._places[name].name]
        return np.asarray(self._dequantize(tensor.data[numbers], tensor.tensor_type), np.float32)

    @property
    def _head(self) -> int:
        width = self.config["hidden_size"] // self.config["num_attention_heads"]
        return int(self.config.get("head_dim") or width)

    def _read(self, name: str, expert: int | None) -> np.ndarray:
        tensor = self._tensors[name]
        data = tensor.data if expert is None else tensor.data[expert]
        try:
            return np.asarray(self._dequantize(data, tensor.tensor_type), np.float32)
        except NotImplementedError:
            raise InputError(
                f"{self.path}: the tensor {name} is {tensor.tensor_type.name}, which the package gguf cannot read",
                do="give a file of another type, as Q8_0 or Q4_0",
            ) from None

    def _named(self) -> dict[str, _Place]:
        """Places by the names of transformers."""
        is_gpt2 = self.config["model_type"] == "gpt2"
        parts, whole = (GPT2, WHOLE["gpt2"]) if is_gpt2 else (LLAMA, WHOLE["llama"])
        blocks = "transformer.h." if is_gpt2 else "model.layers."
        found = {}
        for name, tensor in self._tensors.items():
            stem, _, ending = name.rpartition(".")
            if stem in whole:
                found[f"{whole[stem]}.{ending}"] = _Place(name)
            if not stem.startswith("blk."):
                continue
            _, number, part = stem.split(".", 2)
            if part in EXPERTS:
                for expert in range(int(tensor.shape[-1])):
                    own = f"{blocks}{number}.block_sparse_moe.experts.{expert}.{EXPERTS[part]}.{ending}"
                    found[own] = _Place(name, expert)
            elif part in parts:
                paired = self.metadata["general.architecture"] == "llama" and part in ("attn_q", "attn_k")
                turned = is_gpt2 and ending == "weight" and len(tensor.shape) == 2
                found[f"{blocks}{number}.{parts[part]}.{ending}"] = _Place(name, None, paired, turned)
        return found

    def _config(self) -> dict[str, Any]:
        """The description, in the words of a config.json."""
        kind = str(self.metadata.get("general.architecture"))
        if kind not in ("llama", "qwen2", "gpt2"):
            raise InputError(
                f"{self.path} is a model of the kind {kind!r}", do="give one of llama (Mistral, Mixtral), qwen2, gpt2"
            )

        def told(key: str, otherwise: Any = None) -> Any:
            return self.metadata.get(f"{kind}.{key}", otherwise)

        try:
            vocab = int(self._tensors["token_embd.weight"].shape[-1])
            width, heads = told("embedding_length"), told("attention.head_count")
            if kind == "gpt2":
                return {
                    "model_type": kind,
                    "vocab_size": vocab,
                    "n_embd": width,
                    "n_layer": told("block_count"),
                    "n_head": heads,
                    "n_inner": told("feed_forward_length"),
                    "n_positions": told("context_length"),
                    "layer_norm_epsilon": told("attention.layer_norm_epsilon", 1e-5),
                    "tie_word_embeddings": "output.weight" not in self._tensors,
                    "eos_token_id": list(ends_in(self.metadata)),
                }
            each = int(told("attention.key_length", width // heads))
            experts, window = int(told("expert_count", 0)), told("attention.sliding_window")
            like_llama = "mistral" if window else "llama"
            return {
                "model_type": "mixtral" if experts else like_llama if kind == "llama" else kind,
                "vocab_size": vocab,
                "hidden_size": width,
                "num_hidden_layers": told("block_count"),
                "num_attention_heads": heads,
                "num_key_value_heads": told("attention.head_count_kv", heads),
                "head_dim": each,
                "intermediate_size": told("feed_forward_length"),
                "max_position_embeddings": told("context_length"),
                "rms_norm_eps": told("attention.layer_norm_rms_epsilon", 1e-6),
                "rope_theta": told("rope.freq_base", 1e4),
                "rope_scaling": self._scaling(told),
                "partial_rotary_factor": told("rope.dimension_count", each) / each,
                "sliding_window": window,
                "use_sliding_window": bool(window),
                "max_window_layers": 0,
                "attention_bias": "blk.0.attn_q.bias" in self._tensors,
                "mlp_bias": "blk.0.ffn_up.bias" in self._tensors,
                "tie_word_embeddings": "output.weight" not in self._tensors,
                "num_local_experts": experts,
                "num_experts_per_tok": told("expert_used_count", 0),
                "eos_token_id": list(ends_in(self.metadata)),
            }
        except (KeyError, TypeError, ValueError, ArithmeticError) as problem:
            raise InputError(f"{self.path} does not describe a language model: {fault_of(problem)}") from None

    def _scaling(self, told: Callable[..., Any]) -> dict[str, Any] | None:
        """How positions are scaled, as llama.cpp reads it: without a type linearly; told: a value of the model's kind.

        The attention's factor that its converter writes for YaRN is transformers', and so is what it means here.
        """
        kind = told("rope.scaling.type", "linear")
        factor = float(told("rope.scaling.factor") or told("rope.scale_linear") or 1.0)
        given = {part: told(f"rope.scaling.{part}") for part in UNKNOWN}
        strange = [f"{part} = {value}" for part, value in given.items() if value not in (None, UNKNOWN[part])]
        if FACTORS in self._tensors:
            if kind not in ("none", "linear"):
                strange.append(f"a tensor {FACTORS}")
            own = self._read(FACTORS, None).reshape(-1) * (factor if kind == "linear" else 1.0)
            found = {"rope_type": "factors", "factors": own.tolist()}
        elif kind == "none" or (kind == "linear" and factor == 1.0):
            return None
        else:
            context = told("rope.scaling.original_context_length", told("context_length"))
            found = {"rope_type": kind, "factor": factor, "original_max_position_embeddings": context}
        if kind == "yarn":
            names = {"attention_factor": "attn_factor", "beta_fast": "beta_fast", "beta_slow": "beta_slow"}
            found |= {theirs: told(f"rope.scaling.yarn_{name}") for theirs, name in names.items()}
        if strange:
            found["rope_type"] = f"{kind} with {', '.join(strange)}"
        return found


@functools.lru_cache(maxsize=2)
def _parsed(path: Path, size: int, changed: int) -> tuple[list[Any], dict[str, Any]]:
    """The tensors and the metadata of a file; a vocabulary takes seconds, and an engine asks for it three times."""
    import gguf

    try:
        reader = gguf.GGUFReader(path)
        return list(reader.tensors), {name: field.contents() for name, field in reader.fields.items()}
    except (ValueError, IndexError, KeyError, TypeError, ArithmeticError, OSError) as problem:
        raise CorruptDataError(
            f"{path} ends before its last tensor, or is of another version: {problem}",
            likely="a download or a copy that was cut off",
            do="fetch the file again",
        ) from None


def _unpaired(rows: np.ndarray, head: int) -> np.ndarray:
    """Rows of queries or keys in the order of transformers, where the halves of a head turn together: llama.cpp has
    the pairs side by side.
    """
    heads = len(rows) // head
    pairs = rows.reshape(heads, head // 2, 2, *rows.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)
