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
MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 3, "sliding_window": 128}
SAME = ("vocab", "layers", "width", "heads", "kv_heads", "hidden", "activation", "tied", "rope_scaling", "experts")


@pytest.mark.parametrize("given", [GPT2, LLAMA, {**LLAMA, "num_key_value_heads": 2, "rope_theta": 5e5}, MIXTRAL])
def test_training_and_serving_see_the_same_network(given, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(given))
    kind = "gpt2" if given is GPT2 else "llama"
    ours, theirs = training.read_shape(tmp_path, kind), serving.read_shape(tmp_path)
    for name in SAME:
        if kind == "gpt2" or name != "activation":  # of a Llama it is fixed
            assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.norm_eps == theirs.eps == (1e-5 if kind == "gpt2" else 1e-6)
    if kind == "llama":
        assert ours.rope_base == theirs.rope_base == (1e6 if given is MIXTRAL else given.get("rope_theta", 1e4))
    if given is MIXTRAL:
        assert ours.top_k == theirs.chosen == 3
        assert (ours.context, theirs.context) == (256, 128)


@pytest.mark.parametrize(
    "changed",
    [{"hidden_act": "relu"}, {"partial_rotary_factor": 0.5}, {"attention_bias": True}, {"rope_scaling": {"type": "x"}}],
)
def test_both_refuse_what_the_networks_have_not(changed, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, **changed}))
    for read in (lambda: training.read_shape(tmp_path, "llama"), lambda: serving.read_shape(tmp_path)):
        with pytest.raises(InputError, match=r"activation relu|part of a head|biases|of the kind x"):
            read()
