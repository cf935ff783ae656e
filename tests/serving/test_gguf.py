"""GGUF files: the bits of the Hugging Face folder of the same numbers, and the tokens of the same tokenizer."""

from __future__ import annotations

import json

import numpy as np
import pytest
from conftest import by_day
from models import write_model

from hpckit.cli.main import main
from hpckit.errors import HpckitError
from hpckit.io.safetensors import Safetensors, save_safetensors
from hpckit.kernels.nn.tile.packed import from_gguf, unpack_blocks
from hpckit.serving import Engine, Sampling, ServingStep, TextPiece
from hpckit.serving.checkpoint.vocabulary import ends_in, tokenizer_in

gguf = pytest.importorskip("gguf", reason="gguf is not installed")
WIDE = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "vocab_size": 256}
PARTS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "block_sparse_moe.gate": "ffn_gate_inp",
    "ln_1": "attn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "ln_2": "ffn_norm",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}
WHOLE = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "transformer.wte": "token_embd",
    "transformer.wpe": "position_embd",
    "transformer.ln_f": "output_norm",
}


def paired(rows, heads):
    """Queries or keys as llama.cpp's converter writes them."""
    return rows.reshape(heads, 2, -1, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def write_gguf(path, folder, storage="F32", vocabulary=None, head="", **added):
    """The model of a folder as a GGUF file; matrices in a type of the format."""
    config = json.loads((folder / "config.json").read_text())
    kind, is_gpt2 = config["model_type"], config["model_type"] == "gpt2"
    it = gguf.GGUFWriter(path, "llama" if kind == "mixtral" else kind)
    it.add_context_length(config["n_positions" if is_gpt2 else "max_position_embeddings"])
    it.add_embedding_length(config["n_embd" if is_gpt2 else "hidden_size"])
    it.add_block_count(config["n_layer" if is_gpt2 else "num_hidden_layers"])
    it.add_head_count(config["n_head" if is_gpt2 else "num_attention_heads"])
    it.add_feed_forward_length(4 * config["n_embd"] if is_gpt2 else config["intermediate_size"])
    if is_gpt2:
        it.add_layer_norm_eps(1e-5)
    else:
        it.add_head_count_kv(config["num_key_value_heads"])
        it.add_layer_norm_rms_eps(config["rms_norm_eps"])
        it.add_rope_freq_base(config.get("rope_theta") or (1e6 if kind == "mixtral" else 1e4))
        it.add_rope_dimension_count(config["hidden_size"] // config["num_attention_heads"])
    if kind == "mixtral":
        it.add_expert_count(config["num_local_experts"])
        it.add_expert_used_count(config["num_experts_per_tok"])
    for call, values in (vocabulary or {"add_tokenizer_model": "none"}).items():
        getattr(it, call)(values)
    tensors, experts = {}, {}
    for name, tensor in Safetensors(folder).items():
        stem, _, ending = name.rpartition(".")
        rows = np.array(tensor)
        if stem in WHOLE:
            tensors[f"{WHOLE[stem]}.{ending}"] = rows
            continue
        number, part = stem.removeprefix("model.layers.").removeprefix("transformer.h.").split(".", 1)
        if ".experts." in part:
            _, _, expert, letter = part.split(".")
            own = {"w1": "ffn_gate_exps", "w2": "ffn_down_exps", "w3": "ffn_up_exps"}[letter]
            experts.setdefault(f"blk.{number}.{own}.{ending}", {})[int(expert)] = rows
            continue
        if is_gpt2 and rows.ndim == 2:
            rows = np.ascontiguousarray(rows.T)
        elif kind in ("llama", "mixtral") and PARTS[part] in ("attn_q", "attn_k"):
            rows = paired(rows, config["num_attention_heads" if PARTS[part] == "attn_q" else "num_key_value_heads"])
        tensors[f"blk.{number}.{PARTS[part]}.{ending}"] = rows
    tensors |= {name: np.stack([each[n] for n in range(len(each))]) for name, each in experts.items()}
    for name, rows in (tensors | added).items():
        own = gguf.GGMLQuantizationType["F32" if rows.ndim == 1 else (name == "output.weight" and head) or storage]
        it.add_tensor(name, gguf.quants.quantize(rows, own), raw_dtype=own)
    it.write_header_to_file()
    it.write_kv_data_to_file()
    it.write_tensors_to_file()
    it.close()
    return path


def answer(model, **options):
    engine = Engine(model, texts=1, **options)
    sampling = Sampling(max_tokens=12, ignore_end=True, logprobs=3)
    (one,) = engine.generate([[5, 9, 33, 2, 41]], sampling)
    return one.tokens, one.logprobs, engine


@pytest.mark.parametrize("kind", by_day(["llama", "qwen2", "mixtral", "gpt2"], "mixtral", "gpt2"))
def test_a_file_has_the_bits_of_the_folder(kind, tmp_path):
    folder = write_model(tmp_path / "model", kind)
    assert answer(write_gguf(tmp_path / "m.gguf", folder))[:2] == answer(folder)[:2]


@pytest.mark.parametrize(
    ("storage", "kind"), by_day([("Q8_0", "q8_0"), ("Q4_0", "q4_0"), ("BF16", "bfloat16")], ("Q4_0", "q4_0"))
)
def test_the_numbers_of_the_file_are_kept(storage, kind, tmp_path):
    folder = write_model(tmp_path / "model", "llama", **WIDE)
    path = write_gguf(tmp_path / "m.gguf", folder, storage)
    tokens, logprobs, engine = answer(path)
    assert engine.weights.kind == kind
    widened = {
        name: gguf.quants.dequantize(gguf.quants.quantize(np.array(rows), own), own)
        for name, rows in Safetensors(folder).items()
        for own in [gguf.GGMLQuantizationType[storage if rows.ndim > 1 else "F32"]]
    }
    save_safetensors(folder / "model.safetensors", widened)
    assert answer(folder, weights=kind)[:2] == (tokens, logprobs)
    if storage != "BF16":
        reader = gguf.GGUFReader(path)
        (raw,) = [tensor.data for tensor in reader.tensors if tensor.name == "blk.0.ffn_down.weight"]
        expected = from_gguf(np.array(raw).reshape(len(raw), -1, 34 if storage == "Q8_0" else 18), kind)
        for ours, theirs in zip(unpack_blocks(engine.weights.blocks[0].feeds[0].down.packed), expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_the_head_of_a_mixed_file_keeps_its_type(tmp_path):
    folder = write_model(tmp_path / "model", "llama", **WIDE)
    *_, engine = answer(write_gguf(tmp_path / "m.gguf", folder, "Q4_0", head="Q8_0"))
    assert (engine.weights.kind, engine.weights.head.packed.kind) == ("q4_0", "q8_0")
    assert answer(tmp_path / "m.gguf", weights="q4_0")[2].weights.head.packed.kind == "q4_0"


FACTOR = {"add_rope_scaling_factor": 4.0}
ORIGINAL = {"add_rope_scaling_type": gguf.RopeScalingType.YARN, "add_rope_scaling_orig_ctx_len": 64, **FACTOR}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
SLOPED = {"beta_fast": 4.0, "beta_slow": 2.0}
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "factor": 8.0, "original_max_position_embeddings": 64}


def slowed():
    """The factors of LLAMA3, as llama.cpp's converter writes them."""
    rounds = 64 * 1e4 ** (-np.arange(4) / 4) / (2 * np.pi)
    share = np.clip((rounds - 1) / (4 - 1), 0, 1)
    return {"rope_freqs.weight": (1 / (share + (1 - share) / 8)).astype(np.float32)}


@pytest.mark.parametrize(
    ("kind", "scaling", "told", "tensors"),
    [
        ("llama", {"rope_type": "linear", "factor": 4.0}, FACTOR, {}),  # without a type
        ("llama", {"rope_type": "linear", "factor": 4.0}, {}, {"rope_freqs.weight": np.full(4, 4, np.float32)}),
        ("llama", {"rope_type": "llama3", **LLAMA3}, {}, slowed()),
        ("llama", YARN, ORIGINAL, {}),
        ("qwen2", YARN, ORIGINAL, {}),
        (
            "qwen2",
            {**YARN, "original_max_position_embeddings": 256},
            {**ORIGINAL, "add_rope_scaling_orig_ctx_len": None},
            {},
        ),
        (
            "llama",
            {**YARN, **SLOPED, "attention_factor": 1.4},
            {
                **ORIGINAL,
                "add_rope_scaling_yarn_attn_factor": 1.4,
                **{f"add_rope_scaling_yarn_{name}": value for name, value in SLOPED.items()},
            },
            {},
        ),
    ],
)
def test_positions_are_scaled_as_by_transformers(kind, scaling, told, tensors, tmp_path):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch = pytest.importorskip("torch", reason="torch is not installed")
    rope = {"rope_scaling": scaling, "rope_theta": 10000.0}
    folder = write_model(tmp_path / "model", kind, hidden_size=48, **rope)
    vocabulary = {"add_tokenizer_model": "none", **{call: value for call, value in told.items() if value is not None}}
    path = write_gguf(tmp_path / "m.gguf", folder, vocabulary=vocabulary, **tensors)
    prompt = np.random.default_rng(5).integers(0, 61, 120).tolist()
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        expected = theirs(torch.tensor([prompt])).logits[0].numpy()
    engine = Engine(path, texts=128, rows=128)
    step = ServingStep((TextPiece(0, 0, tuple(prompt), (3, 1, 0, 2), len(prompt)),))
    np.testing.assert_allclose(engine.model.run(step), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("told", "tensors", "said"),
    [
        ({"add_rope_scaling_type": gguf.RopeScalingType.LONGROPE, **FACTOR}, {}, "longrope"),
        ({**ORIGINAL, "add_rope_scaling_yarn_ext_factor": 0.5}, {}, "yarn_ext_factor = 0.5"),
        (ORIGINAL, {"rope_freqs.weight": np.full(4, 4, np.float32)}, "rope_freqs.weight"),
    ],
)
def test_scalings_of_positions_that_are_not_read_are_refused(told, tensors, said, tmp_path):
    folder = write_model(tmp_path / "model", "llama", hidden_size=48)
    path = write_gguf(tmp_path / "m.gguf", folder, vocabulary={"add_tokenizer_model": "none", **told}, **tensors)
    with pytest.raises(HpckitError, match=said):
        Engine(path)


def test_pieces_of_bytes_are_those_of_the_tokenizer(tmp_path):
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    trained = tokenizers.ByteLevelBPETokenizer()
    lines = ["to be or not to be, that is the question", "whether 'tis nobler in the mind to suffer 1234"] * 30
    trained.train_from_iterator(lines, vocab_size=290, special_tokens=["<end>"])
    told = json.loads(trained.to_str())["model"]
    words = sorted(told["vocab"], key=told["vocab"].get)
    vocabulary = {
        "add_tokenizer_model": "gpt2",
        "add_tokenizer_pre": "gpt-2",
        "add_token_list": words,
        "add_token_types": [3, *[1] * (len(words) - 1)],
        "add_token_merges": [" ".join(pair) for pair in told["merges"]],
        "add_bos_token_id": 0,
        "add_eos_token_id": 0,
        "add_add_bos_token": True,
        "add_chat_template": "{{ bos_token }}{% for one in messages %}{{ one.content }}{% endfor %}",
    }
    folder = write_model(tmp_path / "model", "llama", vocab_size=len(words))
    engine = Engine(write_gguf(tmp_path / "m.gguf", folder, vocabulary=vocabulary), texts=1)
    text = "that's not 12 questions — naïve\n\n to be"
    assert engine.encode(text, special=False) == trained.encode(text).ids
    assert engine.encode("be")[0] == 0
    assert engine.tokenizer.decode(engine.encode(text, special=False)) == text
    assert engine.ends == (0,)
    assert engine.chat.prompt([{"role": "user", "content": "or"}]) == "<end>or"


@pytest.mark.parametrize(
    ("cut", "words"),
    [
        ("gpt-2", ["it", "'s", " 123", "\n ", " XMLHttp", " «", "é", "»"]),
        ("smollm", ["it", "'s", " ", "1", "2", "3", "\n ", " XMLHttp", " «", "é", "»"]),
        ("llama-bpe", ["it", "'s", " ", "123", "\n", " ", " XMLHttp", " «", "é", "»"]),
        ("stablelm2", ["it", "'s", " ", "1", "2", "3", "\n", " ", " XMLHttp", " «", "é", "»"]),
        ("tekken", ["it", "'s", " ", "1", "2", "3", "\n", " ", " XMLHttp", " «", "é", "»"]),
        ("deepseek-coder", ["it", "'", "s", " ", "1", "2", "3", "\n", " ", " XMLHttp", " «", "é", "»"]),
        ("deepseek-llm", ["it", "'", "s", " ", "1", "2", "3", "\n", " ", " XMLHttp", " «", "é", "»«", "я", "。"]),
        ("deepseek-v3", ["it", "'s", " ", "123", "4", "\n", " ", " XMLHttp", " «", "é", "»", "はい中", "。"]),
        ("gpt-4o", ["it's", " ", "123", "4", "\n", " ", " XMLHttp", "ID'll", " «", "é", "»/", "中"]),
        ("smaug-bpe", ["it", "'s", " ", "123", "\n", " ", " XMLHttp", " «", "é", "»"]),
    ],
)
def test_texts_are_cut_as_the_file_says_and_begin_and_end_with_its_marks(cut, words):
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    given = {"model": "gpt2", "pre": cut, "tokens": [*letters, "<start>", "<|im_end|>", "<stop>"], "merges": []}
    given |= {"token_type": [1] * 256 + [3] * 3, "bos_token_id": 256, "eot_token_id": 258}
    metadata = {f"tokenizer.ggml.{name}": value for name, value in given.items()}
    made = tokenizer_in(metadata, "m.gguf")
    text = "".join(words)
    assert [text[begin:end] for _, (begin, end) in made._loaded.pre_tokenizer.pre_tokenize_str(text)] == words
    assert (made.encode(text, special=True)[0] == 256) == (cut in ("llama-bpe", "tekken"))  # which llama.cpp adds there
    assert ends_in(metadata) == (258, 257)


def test_pieces_with_scores_join_the_best_first(tmp_path):
    pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    marks = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces = {"▁": -9, "a": -9, "b": -9, "c": -9, "ab": -2, "bc": -1, "▁a": -3, "abc": -4}
    vocabulary = {
        "add_tokenizer_model": "llama",
        "add_token_list": [*marks, *pieces],
        "add_token_scores": [0.0] * len(marks) + [float(score) for score in pieces.values()],
        "add_token_types": [2, 3, 3, *[6] * 256, *[1] * len(pieces)],
        "add_bos_token_id": 1,
        "add_eos_token_id": 2,
    }
    folder = write_model(tmp_path / "model", "llama", vocab_size=len(marks) + len(pieces))
    engine = Engine(write_gguf(tmp_path / "m.gguf", folder, vocabulary=vocabulary), texts=1)
    names = [*marks, *pieces]
    assert [names[token] for token in engine.encode("abcd")] == ["<s>", "▁a", "bc", "<0x64>"]  # bc before ab
    assert engine.tokenizer.decode(engine.encode("ab ä", special=False)) == "ab ä"


def test_generate_reads_a_file_and_refuses_others(tmp_path, capsys):
    folder, prompts = write_model(tmp_path / "model", "llama", **WIDE), tmp_path / "p.jsonl"
    prompts.write_text('"To be"')
    path = write_gguf(tmp_path / "m.gguf", folder, "Q8_0")
    assert main(["generate", str(path), str(prompts), "--max-tokens", "4"]) == 0
    assert json.loads(capsys.readouterr().out)["usage"]["completion_tokens"] == 4
    assert main(["plan", "serve", str(path), "--json"]) == 0
    whole = path.read_bytes()
    for content, said in (
        (b"text", "is not a GGUF file"),
        (whole[: len(whole) // 2], "cut off"),
        (whole[:300], "cut off"),
        (None, "there is no such file"),
    ):
        path.unlink() if content is None else path.write_bytes(content)
        assert main(["generate", str(path), str(prompts)]) == 2 or content is not None
        assert said in capsys.readouterr().err
    other = gguf.GGUFWriter(tmp_path / "other.gguf", "bert")
    for write in (other.write_header_to_file, other.write_kv_data_to_file, other.write_tensors_to_file, other.close):
        write()
    with pytest.raises(HpckitError, match="of the kind 'bert'"):
        Engine(tmp_path / "other.gguf")
