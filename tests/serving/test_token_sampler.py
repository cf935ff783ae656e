"""How tokens are chosen: frequencies, limits and penalties; text from tokens; guesses."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from hpckit.errors import InputError
from hpckit.io.tokenizers import Bytes
from hpckit.serving.sampler import Sampling, adjusted, chosen, likeliest, log_probabilities, probabilities, uniform
from hpckit.serving.speculation import guessed
from hpckit.serving.text import TextStream

LOGITS = np.log(np.array([0.1, 0.4, 0.05, 0.3, 0.15], np.float32))


def test_tokens_come_as_often_as_they_are_likely():
    count = 20_000
    found = np.bincount(
        [chosen(LOGITS, Sampling(temperature=1.0), uniform(7, 0, place)) for place in range(count)], minlength=5
    )
    expected = np.exp(LOGITS) * count
    assert ((found - expected) ** 2 / expected).sum() < 18.5  # chi squared, 4 degrees of freedom, 0.1 %


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        ({"temperature": 1.0}, [0.1, 0.4, 0.05, 0.3, 0.15]),
        ({"temperature": 0.5}, [0.01, 0.16, 0.0025, 0.09, 0.0225]),
        ({"temperature": 1.0, "top_k": 2}, [0, 0.4, 0, 0.3, 0]),
        ({"temperature": 1.0, "top_p": 0.71}, [0, 0.4, 0, 0.3, 0.15]),
        ({"temperature": 1.0, "top_p": 0.69}, [0, 0.4, 0, 0.3, 0]),
        ({"temperature": 1.0, "min_p": 0.3}, [0, 0.4, 0, 0.3, 0.15]),
        ({"temperature": 1.0, "top_k": 3, "top_p": 0.8}, [0, 0.4, 0, 0.3, 0]),
    ],
)
def test_limits_keep_the_likeliest(way, expected):
    np.testing.assert_allclose(probabilities(LOGITS, Sampling(**way)), np.array(expected) / sum(expected), atol=1e-6)


def test_biases_and_penalties_change_the_logits():
    np.testing.assert_array_equal(adjusted(LOGITS, Sampling(), [1], [2], [0]), LOGITS)
    found = adjusted(
        LOGITS, Sampling(logit_bias={3: 9.0}, frequency_penalty=0.5, presence_penalty=0.25), [1], [2, 2], []
    )
    np.testing.assert_allclose(found - LOGITS, [0, 0, -1.25, 9, 0], atol=1e-6)
    found = adjusted(np.array([1, -1, 2], np.float32), Sampling(repetition_penalty=2.0), [0], [1], [])
    np.testing.assert_array_equal(found, [0.5, -2, 2])
    assert adjusted(LOGITS, Sampling(min_tokens=2), [], [4], [1])[1] == -np.inf
    assert chosen(LOGITS, Sampling(), 0.0) == 1
    logprobs = log_probabilities(LOGITS)
    np.testing.assert_allclose(np.exp(logprobs), [0.1, 0.4, 0.05, 0.3, 0.15], rtol=1e-6)
    assert [token for token, _ in likeliest(logprobs, 2, 4)] == [4, 1, 3]


def test_all_wrong_values_are_told_at_once():
    with pytest.raises(InputError) as told:
        Sampling(temperature=-1, top_p=0, n=0, logit_bias={9: 1.0}, stop=("",), logprobs=99).check(9)
    for name in ("temperature", "top_p", "n = 0", "logit_bias", "stop", "logprobs"):
        assert name in told.value.message
    Sampling().check(9)
    assert all(field.name for field in dataclasses.fields(Sampling))


@pytest.mark.parametrize(
    ("stop", "expected"), [((), "höhe 😀 ab-"), (("ab", "x"), "höhe 😀 "), (("ab-c",), "höhe 😀 ab-")]
)
def test_characters_come_whole_and_stop_texts_do_not_come(stop, expected):
    tokens = Bytes().encode("höhe 😀 ab-").tolist()
    stream, parts = TextStream(Bytes(), stop), []
    for token in tokens:
        parts.append(stream.push(token))
        if stream.stopped:
            break
    parts.append(stream.end())
    assert "".join(parts) == expected
    assert all("\ufffd" not in part for part in parts)
    assert stream.stopped == (stop == ("ab", "x"))
    broken = TextStream(Bytes())
    assert broken.push(0xC3) == ""
    assert broken.end() == "\ufffd"


def test_guesses_are_what_followed_before():
    assert guessed([1, 2, 3, 4, 5, 9, 2, 3], 3) == (4, 5, 9)
    assert guessed([1, 2, 3, 1, 2, 4, 1, 2], 1) == (4,)  # the last place counts
    assert guessed([1, 2, 3], 3) == ()
    assert guessed([1], 3) == ()
