"""The same GGUF file in llama.cpp: the tokens and their logarithms, if its keys and values are float32 as ours are.

By default llama.cpp keeps them as float16. That changes the logarithms of these models by up to 4e-2, and where two
tokens, or two experts of a token, are nearly alike, the text goes another way.
"""

from __future__ import annotations

import numpy as np
import pytest
from models import write_model
from test_gguf import write_gguf

from hpckit.serving import Engine, Sampling

llama_cpp = pytest.importorskip("xllamacpp", reason="xllamacpp is not installed")
WIDE = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "vocab_size": 256}
VOCABULARY = {
    "add_tokenizer_model": "llama",
    "add_token_list": ["<unk>", "<s>", "</s>", *(f"w{n:03d}" for n in range(253))],
    "add_token_scores": [0.0] * 256,
    "add_token_types": [2, 3, 3, *[1] * 253],
    "add_bos_token_id": 1,
    "add_eos_token_id": 2,
    "add_add_bos_token": False,
}
PROMPT, COUNT = [5, 9, 33, 20, 41], 40


def theirs(path, kept):
    """Tokens of llama.cpp after PROMPT, and for each the logarithms of the likeliest; kept: the type of its keys."""
    settings = llama_cpp.CommonParams()
    settings.model.path, settings.n_ctx, settings.n_parallel = str(path), 128, 1
    settings.cpuparams.n_threads, settings.warmup, settings.verbosity = 1, False, 0
    settings.cache_type_k = settings.cache_type_v = kept
    settings.flash_attn_type = llama_cpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    asked = {"prompt": PROMPT, "max_tokens": COUNT, "temperature": 0, "logprobs": 3, "ignore_eos": True}
    answer = llama_cpp.Server(settings).handle_completions(asked)
    told = answer["choices"][0]["logprobs"]["content"]
    return [one["id"] for one in told], [{each["id"]: each["logprob"] for each in one["top_logprobs"]} for one in told]


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["llama", "qwen2", "mixtral"])
def test_a_file_gives_the_text_of_llama_cpp(kind, tmp_path):
    path = write_gguf(tmp_path / "m.gguf", write_model(tmp_path / "model", kind, 3, **WIDE), vocabulary=VOCABULARY)
    way = Sampling(max_tokens=COUNT, ignore_end=True, logprobs=3, logit_bias={2: -100.0})  # which it never writes
    (ours,) = Engine(path, texts=1).generate([PROMPT], way)
    tokens, logprobs = theirs(path, llama_cpp.ggml_type.GGML_TYPE_F32)
    assert tokens == ours.tokens
    for (_, *likeliest), found in zip(ours.logprobs, logprobs, strict=True):
        assert {token for token, _ in likeliest} == set(found)
        np.testing.assert_allclose([found[token] for token, _ in likeliest], [one for _, one in likeliest], atol=2e-4)
    _, rounded = theirs(path, llama_cpp.ggml_type.GGML_TYPE_F16)
    first = dict(ours.logprobs[0][1:])
    assert max(abs(value - first[token]) for token, value in rounded[0].items() if token in first) > 2e-4
