"""The same GGUF file in llama.cpp: the tokens and their logarithms, if its keys and values are float32 as ours are.

By default llama.cpp keeps them as float16. That changes the logarithms of these models by up to 4e-2, and where two
tokens, or two experts of a token, are nearly alike, the text goes another way.
"""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from conftest import run_limited
from models import write_model
from test_gguf import write_gguf

from hpckit.serving import Engine, Sampling

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


# A process of its own: the library brings an OpenSSL that breaks netCDF4 and cftime where both are loaded.
PROGRAM = """
import json, sys
import xllamacpp as llama

asked, path, kept = json.loads(sys.argv[1])
settings = llama.CommonParams()
settings.model.path, settings.n_ctx, settings.n_parallel = path, 128, 1
settings.cpuparams.n_threads, settings.warmup, settings.verbosity = 1, False, 0
settings.cache_type_k = settings.cache_type_v = getattr(llama.ggml_type, "GGML_TYPE_" + kept)
settings.flash_attn_type = llama.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
print("\\n" + json.dumps(llama.Server(settings).handle_completions(asked)))
"""


def theirs(path, kept):
    """Tokens of llama.cpp after PROMPT, and for each the logarithms of the likeliest; kept: the type of its keys."""
    asked = {"prompt": PROMPT, "max_tokens": COUNT, "temperature": 0, "logprobs": 3, "ignore_eos": True}
    done = run_limited([sys.executable, "-c", PROGRAM, json.dumps([asked, str(path), kept])], 120)
    assert done.code == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])["choices"][0]["logprobs"]["content"]
    return [one["id"] for one in told], [{each["id"]: each["logprob"] for each in one["top_logprobs"]} for one in told]


@pytest.mark.nightly
@pytest.mark.skipif(find_spec("xllamacpp") is None, reason="xllamacpp is not installed")
@pytest.mark.parametrize("kind", ["llama", "qwen2", "mixtral"])
def test_a_file_gives_the_text_of_llama_cpp(kind, tmp_path):
    path = write_gguf(tmp_path / "m.gguf", write_model(tmp_path / "model", kind, 3, **WIDE), vocabulary=VOCABULARY)
    way = Sampling(max_tokens=COUNT, ignore_end=True, logprobs=3, logit_bias={2: -100.0})  # which it never writes
    (ours,) = Engine(path, texts=1).generate([PROMPT], way)
    tokens, logprobs = theirs(path, "F32")
    assert tokens == ours.tokens
    for (_, *likeliest), found in zip(ours.logprobs, logprobs, strict=True):
        assert {token for token, _ in likeliest} == set(found)
        np.testing.assert_allclose([found[token] for token, _ in likeliest], [one for _, one in likeliest], atol=2e-4)
    _, rounded = theirs(path, "F16")
    first = dict(ours.logprobs[0][1:])
    assert max(abs(value - first[token]) for token, value in rounded[0].items() if token in first) > 2e-4
