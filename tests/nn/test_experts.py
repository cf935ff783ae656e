"""Experts: against a dense loop over all of them, against differences, over microbatches, and against Mixtral."""

from __future__ import annotations

import numpy as np
import pytest

import hpckit as hp
from hpckit.errors import InputError
from hpckit.nn.feedforward import Experts

SIZES = {"width": 6, "hidden": 5, "experts": 4}


def made(top_k=2, seed=1, **more):
    layer = Experts(**SIZES, top_k=top_k, std=0.5, **more)
    parameters = hp.nn.Parameters(layer.parameters(), np.float64)
    parameters.initialize(seed)
    return layer, parameters


def dense(layer, x):
    """Every expert over all tokens, weighted by 0 where it was not chosen; and the two losses, of one sample each."""
    values = x @ layer.router.weight.value
    kth = np.sort(values, axis=-1)[..., -layer.top_k, None]
    raised = np.where(values >= kth, np.exp(values - values.max(-1, keepdims=True)), 0.0)
    weights, y = raised / raised.sum(-1, keepdims=True), np.zeros_like(x)
    for sample, chosen in enumerate(np.argsort(-values, axis=-1, kind="stable")[..., : layer.top_k]):
        room = [np.ceil(layer.capacity * x.shape[1] * layer.top_k / layer.experts) or np.inf] * layer.experts
        for choice in range(layer.top_k):
            for token in range(x.shape[1]):
                expert = chosen[token, choice]
                room[expert] -= 1
                weights[sample, token, expert] *= room[expert] >= 0
    for expert in range(layer.experts):
        gate, up = x @ layer.gate.value[expert], x @ layer.up.value[expert]
        y += weights[..., expert, None] * ((gate / (1 + np.exp(-gate)) * up) @ layer.down.value[expert])
    raised = np.exp(values)
    chance = raised / raised.sum(-1, keepdims=True)
    balance = layer.experts * (layer.shares * chance.mean(axis=1)).sum(-1)
    if layer.shared is not None:
        gate, up = x @ layer.shared.gate.weight.value, x @ layer.shared.up.weight.value
        y += (gate / (1 + np.exp(-gate)) * up) @ layer.shared.down.weight.value
    return y, balance, (np.log(raised.sum(-1)) ** 2).mean(axis=1)


@pytest.mark.parametrize(("top_k", "capacity"), [(1, 0), (2, 0.6), (2, 0), (4, 0)])
def test_a_dense_loop_gives_the_same_and_differences_the_gradients(top_k, capacity):
    layer, parameters = made(top_k, balance=0.3, z=0.2, shared=3 * (top_k == 2), capacity=capacity)
    layer.settle(np.array([1, 5, 0, 2]))
    random = np.random.default_rng(3)
    x, dy = random.standard_normal((2, 2, 5, 6))
    step = hp.nn.Pass(scale=0.1)

    def total():
        y, balance, z = dense(layer, x)
        return (y * dy).sum() + 0.1 * 5 * (0.3 * balance + 0.2 * z).sum()

    y, saved = layer.forward(x, step, onto=dy)
    assert (len(saved["taken"]) < 10 * top_k) == bool(capacity)
    expected, balance, z = dense(layer, x)
    np.testing.assert_allclose(y, expected + dy, rtol=0, atol=1e-13)
    np.testing.assert_allclose(layer.losses(saved), (balance.mean(), z.mean()), rtol=1e-12)
    dx = layer.backward_input(saved, dy)
    layer.backward_weight(saved, dy)
    for array, gradient in [(x, dx), *((p.value, p.grad) for p in parameters.list)]:
        for at in random.integers(0, array.size, 12):
            kept, found = array.flat[at], []
            for change in (1e-6, -1e-6):
                array.flat[at] = kept + change
                found.append(total())
            array.flat[at] = kept
            assert gradient.flat[at] == pytest.approx((found[0] - found[1]) / 2e-6, rel=1e-6, abs=1e-8)


def test_experts_without_tokens_and_one_that_takes_all():
    layer, parameters = made(1)
    x = np.random.default_rng(0).standard_normal((1, 7, 6))
    layer.router.weight.value[...] = 0.0  # all equal: the first expert takes all
    y, saved = layer.forward(x, hp.nn.Pass())
    assert saved["way"].groups == [(0, 0, 7, 0)]
    layer.backward_input(saved, np.ones_like(y))
    layer.backward_weight(saved, np.ones_like(y))
    assert layer.gate.grad[0].any()
    assert not layer.gate.grad[1:].any()
    parameters.zero_grads()
    one = layer.forward(x[:, :1], hp.nn.Pass())[0]
    np.testing.assert_allclose(one, y[:, :1], rtol=1e-13)


def test_microbatches_have_the_gradients_of_the_batch():
    layer, parameters = made(balance=0.5, z=0.5)
    layer.settle(np.array([4, 0, 1, 2]))
    x, dy = np.random.default_rng(5).standard_normal((2, 6, 4, 6))
    found = []
    for cuts in ([slice(0, 6)], [slice(0, 1), slice(1, 4), slice(4, 6)]):
        parameters.zero_grads()
        for cut in cuts:
            _, saved = layer.forward(x[cut], hp.nn.Pass(scale=1 / 24))
            layer.backward_input(saved, dy[cut])
            layer.backward_weight(saved, dy[cut])
        found.append(parameters.grads.copy())
    assert layer.chosen.sum() == 2 * 6 * 4 * 2  # of both batches
    layer.settle(layer.chosen)
    assert layer.shares.sum() == pytest.approx(1.0)
    assert not layer.chosen.any()
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-13)


def test_what_cannot_be_chosen_is_refused():
    with pytest.raises(InputError, match="5 experts a token"):
        Experts(4, 4, 4, top_k=5)
    with pytest.raises(InputError, match="hidden 0"):
        Experts(4, 0, 4)


@pytest.mark.nightly
def test_logits_are_those_of_mixtral_in_transformers():
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = transformers.MixtralConfig(
        vocab_size=61, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, num_local_experts=5, num_experts_per_tok=2, rope_theta=1e4, rms_norm_eps=1e-5,
        sliding_window=None, tie_word_embeddings=False,
    )  # fmt: skip
    torch.manual_seed(0)
    theirs = transformers.MixtralForCausalLM(config).eval()
    ours = hp.nn.llama(61, 2, 32, 4, 2, 48, 64, experts=5)
    parameters = hp.nn.Parameters(ours.parameters())
    state = {name: value.numpy() for name, value in theirs.state_dict().items()}
    named = parameters.named()
    named["embed.token.weight"].value[...] = state["model.embed_tokens.weight"]
    named["head.norm.gain"].value[...] = state["model.norm.weight"]
    named["head.weight"].value[...] = state["lm_head.weight"]
    for block in range(2):
        of = {name.removeprefix(f"model.layers.{block}."): value for name, value in state.items()}
        if "mlp.experts.gate_up_proj" not in of:
            pytest.skip("another release keeps the experts under other names")
        qkv = np.concatenate([of[f"self_attn.{which}_proj.weight"].T for which in "qkv"], axis=1)
        gate, up = np.split(of["mlp.experts.gate_up_proj"].transpose(0, 2, 1), 2, axis=2)
        for name, value in {
            "norm1.gain": of["input_layernorm.weight"],
            "norm2.gain": of["post_attention_layernorm.weight"],
            "attention.qkv.weight": qkv,
            "attention.out.weight": of["self_attn.o_proj.weight"].T,
            "mlp.router.weight": of["mlp.gate.weight"].T,
            "mlp.gate.weight": gate,
            "mlp.up.weight": up,
            "mlp.down.weight": of["mlp.experts.down_proj"].transpose(0, 2, 1),
        }.items():
            named[f"block.{block}.{name}"].value[...] = value
    tokens = np.random.default_rng(0).integers(0, 61, (2, 9))
    with torch.no_grad():
        expected = theirs(torch.from_numpy(tokens)).logits.numpy()
    found, _ = ours.forward(tokens.astype(np.int32), hp.nn.Pass(training=False))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
