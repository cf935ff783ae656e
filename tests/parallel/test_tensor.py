"""Tensor and sequence parallelism: equal to the serial model, to transformers, and refused where it does not divide."""

import numpy as np
import pytest

from hpckit.apps.train.config import Config
from hpckit.apps.train.layout import layout
from hpckit.errors import InputError
from hpckit.nn.cuts import cuts, local_sizes, misfits, own_part
from hpckit.nn.feedforward import mlp
from hpckit.nn.gpt import gpt2, llama


@pytest.mark.nightly  # the app below does so on two ranks
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 6])
def test_equals_the_serial_model(ranks, mpirun):
    assert "good" in mpirun(ranks, "tensor_ranks.py", timeout=200).stdout


@pytest.mark.parametrize("ranks", [2, *(pytest.param(n, marks=pytest.mark.nightly) for n in (1, 3, 4))])
def test_linear_maps_cut_over_ranks_are_the_whole_ones(ranks, mpirun):
    assert "good" in mpirun(ranks, "tensor_linear.py", timeout=60).stdout


def test_the_app_goes_on_anywhere_and_has_the_logits_of_transformers(mpirun, tmp_path):
    theirs = _checkpoints(tmp_path)
    assert "good" in mpirun(2, "tensor_app.py", tmp_path, timeout=200).stdout
    with np.load(tmp_path / "logits.npz") as found:
        for kind, logits_of in theirs.items():
            wanted = logits_of(found["tokens"])
            assert np.abs(wanted).max() > 0.1
            np.testing.assert_allclose(found[kind], wanted, atol=1e-5)


def _checkpoints(folder):
    """Fresh networks of transformers, saved, and their logits; none where it is not installed."""
    try:
        import torch
        import transformers
    except ImportError:
        return {}
    torch.manual_seed(3)
    # 259 words: a byte's 256 and an odd rest
    common = {"vocab_size": 259, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    settings = {
        "gpt2": transformers.GPT2Config(n_layer=2, n_head=4, n_embd=32, n_positions=16, **common),
        "llama": transformers.LlamaConfig(
            num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, hidden_size=32, intermediate_size=48,
            max_position_embeddings=16, initializer_range=0.2, **common,
        ),
    }  # fmt: skip
    found = {}
    for kind, each in settings.items():
        model = transformers.AutoModelForCausalLM.from_config(each).eval()
        model.save_pretrained(folder / kind)

        def logits(tokens, model=model):
            with torch.no_grad():
                return model(torch.from_numpy(tokens).long()).logits.numpy()

        found[kind] = logits
    return found


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
def test_parts_are_cut_and_joined_and_begin_with_the_numbers_of_the_whole(ranks):
    model = llama(23, 2, 84, 42, 21, 84, 5, tied=True) if ranks != 2 else gpt2(23, 2, 24, 4, 5)
    made = cuts(model, ranks)
    for p in model.parameters():
        if p.name in made:
            cut = made[p.name]
            owners = np.zeros(p.shape[cut.dim], int)
            for rank in range(ranks):
                for start, end in cut.ranges[rank]:
                    owners[start:end] += 1
            assert (owners == 1).all(), p.name
            parts = [own_part(p, cut, rank) for rank in range(ranks)]
            values = [np.asarray(part.initial(4)) for part in parts]
            if values[0].ndim:
                assert [part.shape for part in parts] == [value.shape for value in values]
                np.testing.assert_array_equal(cut.join(values), p.initial(4))
    if ranks == 3:  # heads stay whole: the columns of queries, keys and values of one rank belong together
        assert made["block.0.attention.qkv.weight"].ranges[1] == ((28, 56), (98, 112), (140, 154))
        assert local_sizes(model, 3)["embed.token.weight"] == 8 * 84


def test_what_does_not_divide_is_told_at_once_with_what_would():
    assert misfits(gpt2(9, 1, 24, 4, 5), 3) == [
        "4 heads and 4 heads of keys and values do not divide by tp=3: take tp=1 or 2 or 4"
    ]
    assert misfits(mlp([3, 4, 5]), 2)[0].startswith("tp=2 is for transformers")
    assert misfits(mlp([3, 4, 5]), 1) == []
    config = Config.model_validate({"mesh": {"tp": 3, "pp": 9, "dp": 5}, "batch": {"size": 7}})
    with pytest.raises(InputError) as caught:
        layout(config, 4)
    told = str(caught.value)
    for part in (
        "8 heads",
        "take tp=1 or 2 or 4 or 8",
        "dp=5 x pp=9 x tp=3 is 135 ranks",
        "cut into pp=9",
        "batch of 7",
    ):
        assert part in told, (part, told)
