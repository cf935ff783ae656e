"""Transformers: gradients by central differences, recomputation, dropout, tied tables; PyTorch where there is one."""

from __future__ import annotations

import numpy as np
import pytest
from nn_gradients import check

from hpckit.errors import InputError
from hpckit.nn.dropout import Dropout
from hpckit.nn.embedding import Embedding, Unembedding
from hpckit.nn.feedforward import FeedForward, GatedFeedForward
from hpckit.nn.gpt import gpt2, llama
from hpckit.nn.layer import Pass, Sequential, backward
from hpckit.nn.loss import CrossEntropy
from hpckit.nn.norms import LayerNorm, RMSNorm
from hpckit.nn.parameters import Parameters
from hpckit.nn.transformer.attention import Attention
from hpckit.nn.transformer.block import Recompute, Residual
from hpckit.nn.transformer.rotary import RopeScaling

TOKENS = np.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
MODELS = {
    "gpt2": lambda **more: gpt2(11, 2, 8, 2, 7, **more),
    "llama": lambda **more: llama(11, 2, 8, 4, 2, 6, 7, **more),
}


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize(
    "layer",
    [
        LayerNorm(6),
        RMSNorm(6),
        Attention(6, 3),
        Attention(6, 1),
        Attention(6, 4, kv_heads=2, head_width=2, dropout=0.4),
        Attention(6, 4, kv_heads=2, head_width=4, rope_base=100.0, bias=False),
        FeedForward(6, 7),
        FeedForward(6, 7, activation="gelu_erf"),
        GatedFeedForward(6, 5),
        Residual(LayerNorm(6), FeedForward(6, 5), Dropout(0.4)),
        Recompute(Sequential([Residual(RMSNorm(6), Attention(6, 2)), Unembedding(3, 6)])),
        Dropout(0.3),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_layers(layer):
    check(layer, numbers(2, 4, 6))


def test_attention_is_the_published_one():
    """Written out: which keys a query sees, which of their heads it has, the scale, and how pairs of numbers turn."""
    layer = Attention(6, 4, kv_heads=2, head_width=4, rope_base=100.0, bias=False)
    parameters = Parameters(layer.parameters(), np.float64)
    parameters.initialize(1)
    x = numbers(2, 5, 6)
    found, _ = layer.forward(x, Pass())
    qkv = (x @ layer.qkv.weight.value).reshape(2, 5, 8, 4)
    turns = np.arange(5)[:, None] * np.array([1.0, 0.1])  # 100^(-2 i / 4)
    low, high = qkv[:, :, :6, :2], qkv[:, :, :6, 2:]  # Su et al. 2021, in halves as Llama's checkpoints have them
    cosine, sine = np.cos(turns)[:, None], np.sin(turns)[:, None]
    turned = np.concatenate([low * cosine - high * sine, high * cosine + low * sine], axis=-1)
    mixed = np.zeros((2, 5, 4, 4))
    for sample, token, head in np.ndindex(2, 5, 4):
        keys, values = turned[sample, : token + 1, 4 + head // 2], qkv[sample, : token + 1, 6 + head // 2]
        weights = np.exp(keys @ turned[sample, token, head] / 2)  # sqrt of the width of a head
        mixed[sample, token, head] = weights @ values / weights.sum()
    np.testing.assert_allclose(found, mixed.reshape(2, 5, 16) @ layer.out.weight.value, rtol=1e-12, atol=1e-15)


def test_rotary_speeds_are_scaled_by_their_wavelengths():
    """Llama 3.1: fast pairs keep their speed, slow ones get a part, between lies a line; linear scaling slows all."""
    speeds = np.array([1.0, 2 * np.pi * 2.5 / 100, 1e-3])  # 15.9, 2.5 and 0.016 turns in 100 tokens
    np.testing.assert_allclose(RopeScaling(8.0, 1.0, 4.0, 100).scaled(speeds, 1e4), speeds * [1, 0.5 + 0.5 / 8, 1 / 8])
    np.testing.assert_allclose(RopeScaling(8.0).scaled(speeds, 1e4), speeds / 8)


@pytest.mark.parametrize("kind", [LayerNorm, RMSNorm])
def test_norms_are_the_published_ones(kind):
    layer, x = kind(6, eps=0.1), numbers(3, 4, 6) + 2
    parameters = Parameters(layer.parameters(), np.float64)
    parameters.values[:] = np.random.default_rng(4).normal(size=parameters.size)
    if kind is LayerNorm:
        wanted = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 0.1)
        wanted = wanted * layer.gain.value + layer.bias.value
    else:
        wanted = x / np.sqrt((x**2).mean(-1, keepdims=True) + 0.1) * layer.gain.value
    np.testing.assert_allclose(layer.forward(x, Pass())[0], wanted, rtol=1e-12)


@pytest.mark.parametrize("context", [0, 7])
def test_embedding(context):
    check(Embedding(11, 3, context=context), TOKENS)
    with pytest.raises(InputError, match=r"0 to 10.* 1 to 12"):
        _embedded(context).forward(TOKENS + np.array([[0, 0, 0, 0, 1], [3, 0, 0, 0, 0]]), Pass())
    with pytest.raises(InputError, match=r"0 to 10.* 11 to 11"):
        _embedded(context).forward(np.array([[11]]), Pass())
    with pytest.raises(InputError, match=r"tokens are \[samples, context\], not \[3\]"):
        _embedded(context).forward(np.ones(3, int), Pass())
    if context:
        with pytest.raises(InputError, match="context of 7"):
            _embedded(context).forward(np.ones((1, 8), int), Pass())


def _embedded(context):
    layer = Embedding(11, 3, context=context)
    Parameters(layer.parameters())
    return layer


def gradients(model, dtype=np.float64, step=None, tokens=TOKENS, seed=2):
    """Loss and Parameters with the gradients of the mean loss of predicting the token before."""
    parameters, loss = Parameters(model.parameters(), dtype), CrossEntropy(11)
    parameters.initialize(seed)
    logits, saved = model.forward(tokens, step or Pass())
    total, kept = loss.forward(logits, np.roll(tokens, 1, axis=1))
    assert backward(model, saved, loss.backward(kept, 1 / tokens.size)) is None
    parameters.add_second_grads()
    return total / tokens.size, parameters


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("tied", [True, False])
def test_models(name, tied):
    model = gpt2(11, 1, 4, 2, 5, tied=tied) if name == "gpt2" else llama(11, 1, 4, 2, 1, 3, 5, tied=tied)
    assert model.names == ["embed", "block.0", "head"]
    assert ("head.weight" in {p.name for p in model.parameters()}) != tied
    check(model, TOKENS)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("recompute", [True, "attention"])
def test_recompute_gives_the_same_bits(name, recompute):
    dropped = {"dropout": 0.2} if name == "gpt2" else {}
    step = Pass(seed=1, step=2, first_sample=3)
    one, plain = gradients(MODELS[name](**dropped), np.float32, step)
    other, again = gradients(MODELS[name](recompute=recompute, **dropped), np.float32, step)
    assert one == other
    np.testing.assert_array_equal(plain.grads, again.grads)


@pytest.mark.parametrize("rates", [{"dropout": 0.5, "attention_dropout": 0.0}, {"attention_dropout": 0.5}])
def test_dropout_does_not_depend_on_microbatches(rates):
    model = gpt2(11, 1, 8, 2, 7, **rates)
    Parameters(model.parameters()).initialize(1)
    whole, _ = model.forward(TOKENS, Pass(seed=1, step=3))
    second, _ = model.forward(TOKENS[1:], Pass(seed=1, step=3, first_sample=1))
    np.testing.assert_allclose(whole[1:], second, rtol=1e-5, atol=1e-6)
    still, _ = model.forward(TOKENS, Pass(training=False))
    assert (still != whole).any()
    np.testing.assert_array_equal(still, model.forward(TOKENS, Pass(training=False, seed=9))[0])


@pytest.mark.parametrize("name", MODELS)
def test_models_against_torch(name):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    model = MODELS[name](tied=True)
    tokens = np.random.default_rng(4).integers(0, 11, (3, 7))
    loss, parameters = gradients(model, tokens=tokens)
    values = {key: torch.from_numpy(p.value.copy()).requires_grad_() for key, p in parameters.named().items()}
    logits = {"gpt2": _torch_gpt2, "llama": _torch_llama}[name](torch, values, torch.from_numpy(tokens))
    wanted = torch.nn.functional.cross_entropy(
        logits.reshape(-1, 11), torch.from_numpy(np.roll(tokens, 1, axis=1).reshape(-1))
    )
    wanted.backward()
    assert loss == pytest.approx(wanted.item(), rel=1e-12)
    for key, p in parameters.named().items():
        np.testing.assert_allclose(p.grad, values[key].grad.numpy(), rtol=1e-5, atol=1e-12, err_msg=key)


def _torch_gpt2(torch, w, tokens):
    f = torch.nn.functional
    x = w["embed.token.weight"][tokens] + w["embed.position.weight"][: tokens.shape[1]]
    for i in range(2):
        b = f"block.{i}"
        a = f.layer_norm(x, (8,), w[f"{b}.norm1.gain"], w[f"{b}.norm1.bias"])
        parts = (a @ w[f"{b}.attention.qkv.weight"] + w[f"{b}.attention.qkv.bias"]).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in parts)
        mixed = f.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + mixed @ w[f"{b}.attention.out.weight"] + w[f"{b}.attention.out.bias"]
        a = f.layer_norm(x, (8,), w[f"{b}.norm2.gain"], w[f"{b}.norm2.bias"])
        hidden = f.gelu(a @ w[f"{b}.mlp.up.weight"] + w[f"{b}.mlp.up.bias"], approximate="tanh")
        x = x + hidden @ w[f"{b}.mlp.down.weight"] + w[f"{b}.mlp.down.bias"]
    return f.layer_norm(x, (8,), w["head.norm.gain"], w["head.norm.bias"]) @ w["embed.token.weight"].T


def _torch_llama(torch, w, tokens):
    f, length = torch.nn.functional, tokens.shape[1]

    def norm(x, gain):
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5) * gain

    angle = torch.arange(length)[:, None].double() * torch.tensor([1.0], dtype=torch.float64)  # heads of 2 numbers
    c, s = angle.cos(), angle.sin()

    def turned(x):
        return torch.cat([x[..., :1] * c - x[..., 1:] * s, x[..., 1:] * c + x[..., :1] * s], -1)

    x = w["embed.token.weight"][tokens]
    for i in range(2):
        b = f"block.{i}"
        every = norm(x, w[f"{b}.norm1.gain"]) @ w[f"{b}.attention.qkv.weight"]
        q, k, v = (part.unflatten(-1, (-1, 2)).transpose(1, 2) for part in every.split([8, 4, 4], -1))
        k, v = (part.repeat_interleave(2, 1) for part in (turned(k), v))
        mixed = f.scaled_dot_product_attention(turned(q), k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + mixed @ w[f"{b}.attention.out.weight"]
        a = norm(x, w[f"{b}.norm2.gain"])
        gate = f.silu(a @ w[f"{b}.mlp.gate.weight"])
        x = x + (gate * (a @ w[f"{b}.mlp.up.weight"])) @ w[f"{b}.mlp.down.weight"]
    return norm(x, w["head.norm.gain"]) @ w["embed.token.weight"].T


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: gpt2(11, 2, 8, 3, 7), "3 heads"),
        (lambda: llama(11, 2, 8, 4, 3, 6, 7), "on 3 heads of keys"),
        (lambda: llama(11, 2, 12, 4, 2, 6, 7), "even width, not 3"),
        (lambda: gpt2(0, 2, 8, 2, 0), "vocab = 0, context = 0"),
        (lambda: Dropout(1.0), "dropout rate"),
        (lambda: gpt2(11, 2, 8, 2, 7, attention_dropout=-0.1), "dropout rate"),
        (lambda: gpt2(11, 2, 8, 2, 7, activation="tanh"), "'tanh'"),
    ],
)
def test_models_that_cannot_be(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_the_maps_back_to_the_residual_start_smaller():
    parameters = Parameters(gpt2(50, 2, 64, 4, 40).parameters())
    parameters.initialize(3)
    deviations = {p.name: float(p.value.std()) for p in parameters.list if p.name.endswith("weight")}
    for name, deviation in deviations.items():
        wanted = 0.02 / 2 if name.endswith(("attention.out.weight", "mlp.down.weight")) else 0.02  # / sqrt(2 layers)
        assert deviation == pytest.approx(wanted, rel=0.1), name
    assert not any(p.value.any() for p in parameters.list if p.name.endswith("bias"))


def test_layers_draw_numbers_of_their_own():
    x, step = np.ones((2, 50), np.float32), Pass(seed=1)
    one, other, again = (Dropout(0.5, name).forward(x, step)[0] for name in ("one", "two", "one"))
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()
    for other in (Pass(seed=2), Pass(seed=1, step=1), Pass(seed=1, first_sample=2)):
        assert (Dropout(0.5, "one").forward(x, other)[0] != one).any()
    parameters = Parameters(gpt2(11, 2, 8, 2, 7).parameters())
    parameters.initialize(3)
    named = parameters.named()
    assert (named["block.0.mlp.up.weight"].value != named["block.1.mlp.up.weight"].value).all()
