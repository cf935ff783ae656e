"""Text token by token: what attention keeps gives the logits and tokens that the whole text gives."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import by_day
from test_nn_kernels import DTYPES, close

from hpckit.errors import InputError
from hpckit.kernels.nn.attention import dispatch as attention
from hpckit.kernels.nn.attention import reference as attention_reference
from hpckit.nn.gpt import chosen, continued, gpt2, llama
from hpckit.nn.layer import KeyValues, Pass
from hpckit.nn.parameters import Parameters
from hpckit.nn.transformer.rotary import RopeScaling

CONTEXT = 12
MODELS = {
    "gpt2": lambda: gpt2(11, 2, 8, 2, CONTEXT, dropout=0.3, recompute=True),
    "llama": lambda: llama(11, 2, 16, 4, 2, 6, CONTEXT, rope_scaling=RopeScaling(8.0, 1.0, 4.0, 9)),
}
TEXT = np.random.default_rng(1).integers(0, 11, (2, CONTEXT))


def made(name, dtype):
    model = MODELS[name]()
    parameters = Parameters(model.parameters(), dtype)
    parameters.initialize(3)
    parameters.values *= 10  # far from equal logits
    return model


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("start", "count"), by_day([(0, 1), (6, 1), (5, 3)], (5, 3)))
def test_cached_attention_is_the_end_of_the_whole(dtype, start, count):
    end = start + count
    qkv = np.random.default_rng(2).normal(0, 2, (2, end, 8, 6)).astype(dtype)
    whole, logs = np.empty((2, end, 4, 6), dtype), np.empty((2, 4, end), dtype)
    attention.attention(qkv, 4, 2, whole, logs)
    kept = np.full((2, end + 3, 4, 6), np.nan, dtype)  # what lies behind is not read
    kept[:, :end] = qkv[:, :, 4:]
    for form in (attention, attention_reference):
        out = np.empty((2, count, 4, 6), dtype)
        form.cached_attention(np.ascontiguousarray(qkv[:, start:]), 4, 2, kept, start, out)
        close(out, whole[:, start:], dtype, 10)
    with pytest.raises(ValueError, match="do not fit keys and values"):
        attention.cached_attention(qkv, 4, 2, kept, 4, out)


@pytest.mark.parametrize("name", MODELS)
def test_pieces_of_a_text_have_the_logits_of_the_whole(name):
    model = made(name, np.float64)
    whole, _ = model.forward(TEXT, Pass(training=False))
    cache, found = KeyValues(CONTEXT), []
    for count in (4, 1, 3, 1, 1, 2):
        piece = TEXT[:, cache.length : cache.length + count]
        logits, _ = model.forward(piece, Pass(training=False, cache=cache))
        cache.length += count
        found.append(logits.copy())
    np.testing.assert_allclose(np.concatenate(found, axis=1), whole, rtol=1e-10, atol=1e-12)
    with pytest.raises(InputError, match=r"12 \+ 1 tokens|13 tokens"):
        model.forward(TEXT[:, :1], Pass(training=False, cache=cache))


class Counting:
    """A model that counts the tokens it is given."""

    def __init__(self, model):
        self.model, self.seen = model, []

    def forward(self, tokens, step):
        self.seen.append(tokens.shape[1])
        return self.model.forward(tokens, step)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_texts_are_those_without_a_cache(name, temperature):
    model = made(name, np.float64)
    counting = Counting(model)
    text = continued(counting, TEXT[0, :3], 14, context=CONTEXT, vocab=11, temperature=temperature, top_k=5, seed=7)
    random, wanted = np.random.default_rng(7), TEXT[0, :3].tolist()
    for _ in range(14):
        window = np.array([wanted[-CONTEXT:]])
        last = model.forward(window, Pass(training=False))[0][0, -1]
        wanted.append(chosen(last, temperature, 5, random))
    assert text.tolist() == wanted
    assert len(set(wanted)) > 3
    # One token at a time while the text fits the context, the window anew behind it.
    assert counting.seen == [3] + [1] * 9 + [CONTEXT] * 4
