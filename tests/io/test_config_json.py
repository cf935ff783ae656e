"""One reader of config.json: training and serving see the same network."""

from __future__ import annotations

import json

import pytest

from hpckit.apps.train import shape as training
from hpckit.errors import InputError
from hpckit.serving.checkpoint import shape as serving

GPT2 = {"model_type": "gpt2", "vocab_size": 61, "n_layer": 2, "n_embd": 24, "n_head": 3, "n_positions": 256}
LLAMA = {
    "model_type": "llama",
    "vocab_size": 61,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "intermediate_size": 36,
    "max_position_embeddings": 256,
}
EXPERTS = {"num_key_value_heads": 6, "num_local_experts": 4, "num_experts_per_tok": 3}
MIXTRAL = {**LLAMA, **EXPERTS, "model_type": "mixtral", "sliding_window": 128}
SAME = ("vocab", "layers", "width", "heads", "kv_heads", "hidden", "activation", "tied", "rope_scaling", "experts")


@pytest.mark.parametrize("given", [GPT2, LLAMA, {**LLAMA, "num_key_value_heads": 2, "rope_theta": 5e5}, MIXTRAL])
def test_training_and_serving_see_the_same_network(given, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(given))
    kind = "gpt2" if given is GPT2 else "llama"
    ours, theirs = training.read_shape(tmp_path, kind), serving.read_shape(tmp_path)
    for name in SAME:
        if kind == "gpt2" or name != "activation":  # of a Llama it is fixed
            assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.norm_eps == theirs.eps == (1e-6 if kind == "llama" and given is not MIXTRAL else 1e-5)
    if kind == "llama":
        assert ours.rope_base == theirs.rope_base == (1e6 if given is MIXTRAL else given.get("rope_theta", 1e4))
    if given is MIXTRAL:
        assert ours.top_k == theirs.chosen == 3
        assert (theirs.context, theirs.window_of(1)) == (256, 128)


@pytest.mark.parametrize(
    "changed",
    [{"hidden_act": "relu"}, {"partial_rotary_factor": 0.5}, {"rope_scaling": {"type": "x"}}],
)
def test_both_refuse_what_the_networks_have_not(changed, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, **changed}))
    for read in (lambda: training.read_shape(tmp_path, "llama"), lambda: serving.read_shape(tmp_path)):
        with pytest.raises(InputError, match=r"activation relu|part of a head|of the kind x"):
            read()


def test_training_alone_refuses_biases(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "attention_bias": True}))
    assert serving.read_shape(tmp_path).biased == {"q", "k", "v", "out"}
    with pytest.raises(InputError, match="biases"):
        training.read_shape(tmp_path, "llama")


@pytest.mark.nightly
def test_what_a_silent_file_means_is_as_in_transformers(tmp_path):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    sizes = {**LLAMA, "num_attention_heads": 32, "hidden_size": 64, "num_local_experts": 4, "num_experts_per_tok": 2}
    for kind in ("llama", "mistral", "mixtral", "qwen2"):
        (tmp_path / "config.json").write_text(json.dumps({**sizes, "model_type": kind}))
        ours, theirs = serving.read_shape(tmp_path), transformers.AutoConfig.from_pretrained(tmp_path)
        assert ours.eps == theirs.rms_norm_eps
        assert ours.kv_heads == theirs.num_key_value_heads
        assert ours.window == (getattr(theirs, "sliding_window", None) or 0)
        assert ours.rope_base == theirs.rope_parameters["rope_theta"]
        assert ours.tied == theirs.tie_word_embeddings


def test_training_writes_the_positions_that_it_read(tmp_path):
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "truncate": False}
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "rope_scaling": scaling}))
    shape = training.read_shape(tmp_path, "llama")
    (tmp_path / "config.json").write_text(json.dumps(training.hugging_face_config(shape)))
    assert training.read_shape(tmp_path, "llama").rope_scaling == shape.rope_scaling
    assert shape.rope_scaling.gain > 1
