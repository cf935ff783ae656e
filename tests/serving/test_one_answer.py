"""One answer: tokens and the bits of logits are those of a request alone, prefilled whole, under every schedule."""

from __future__ import annotations

import numpy as np
import pytest
from models import write_model

from hpckit.errors import InputError
from hpckit.kernels.nn.paged.pages import PAGE
from hpckit.serving import Engine, Sampling, ServingStep, StepReplay, TextPiece

KINDS = ("mistral", "mixtral", "gpt2")  # the first has a window


class Watched(Engine):
    """An engine that keeps the bits of all logits that tokens were chosen from, and proves each step before it runs."""

    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        self.bits = {}
        self.proof = StepReplay(self.blocks.count, self.model.rows)
        run = self.model.run

        def proved(step):
            for text in self.scheduler.waiting:
                self.proof.dropped(text.number)
            self.proof.run(step, {number: one.text.tokens for number, one in self._samples.items()})
            return run(step)

        self.model.run = proved

    def _next(self, sample, row):
        self.bits[sample.request, sample.number, len(sample.text.tokens)] = row.tobytes()
        return super()._next(sample, row)

    def finish(self):
        found = {}
        while not self.idle:
            for event in self.step():
                found.setdefault((event.request, event.sample), []).append(event)
        return {
            key: ([event.token for event in events], "".join(event.text for event in events))
            for key, events in found.items()
        }


def requests(seed, count=9, vocab=61):
    """Prompts of which some begin alike, each with a way to choose tokens."""
    random = np.random.default_rng(seed)
    common = random.integers(0, vocab, 70).tolist()
    found = []
    for n in range(count):
        prompt = [
            *common[: int(random.choice([0, 33, 64, 70]))],
            *random.integers(0, vocab, random.integers(1, 40)).tolist(),
        ]
        way = {} if n % 3 == 0 else {"temperature": 1.3, "seed": n, "top_p": 0.9, "n": 1 + n % 2}
        if n % 4 == 1:
            way |= {"frequency_penalty": 0.5, "repetition_penalty": 1.1, "logit_bias": {3: 2.0}}
        found.append((prompt, Sampling(max_tokens=int(random.integers(1, 30)), ignore_end=True, **way)))
    return found


def alone(folder, given, **options):
    """Each request in an engine of its own."""
    engine, tokens, bits = Watched(folder, texts=2, rows=256, prefixes=False, **options), {}, {}
    for n, (prompt, sampling) in enumerate(given):
        engine.add(prompt, sampling, name=f"r{n}")
        tokens |= engine.finish()
        bits |= engine.bits
    return tokens, bits


def scheduled(folder, given, seed, answers, **options):
    """All of them in one engine with little memory, in a random order and at random steps; a part of the guesses comes
    from the `answers`, with mistakes.
    """
    random = np.random.default_rng(seed)
    engine = Watched(
        folder,
        rows=int(random.integers(9, 50)),
        texts=int(random.integers(2, 6)),
        chunk=int(random.integers(3, 40)),
        kv_tokens=int(random.integers(6, 12)) * PAGE,
        speculate=int(random.integers(0, 4)),
        **options,
    )
    guesses = engine._guesses

    def guessed(sample):
        known, at = answers.get((sample.request, sample.number), ([], ""))[0], len(sample.text.written)
        own = [token if random.random() < 0.8 else 0 for token in known[at : at + engine.speculate]]
        own = own[: sample.sampling.max_tokens - at - 1]
        return tuple(own) if random.random() < 0.5 else guesses(sample)

    engine._guesses = guessed
    tokens, left = {}, random.permutation(len(given)).tolist()
    while left or not engine.idle:
        for _ in range(int(random.integers(0, 3))):
            if left:
                n = left.pop()
                engine.add(*given[n], name=f"r{n}", priority=int(random.integers(0, 2)))
        if random.random() < 0.1:  # a client that hangs up at once
            engine.add(given[0][0], Sampling(max_tokens=5), name="gone")
            gone = engine.step()
            engine.abort("gone")
        else:
            gone = []
        for event in [*gone, *engine.step()]:
            tokens.setdefault((event.request, event.sample), []).append(event)
    assert engine.blocks.used == 0
    engine.blocks.check()
    told = {
        key: ([one.token for one in events], "".join(one.text for one in events))
        for key, events in tokens.items()
        if key[0] != "gone"
    }
    return told, {key: bits for key, bits in engine.bits.items() if key[0] != "gone"}, engine


@pytest.mark.parametrize("kind", KINDS)
def test_every_schedule_gives_the_answer_of_a_request_alone(kind, tmp_path):
    folder, given = write_model(tmp_path, kind), requests(1)
    expected = alone(folder, given)
    preempted = found = accepted = 0
    for seed in range(6):
        tokens, bits, engine = scheduled(folder, given, seed, expected[0])
        assert tokens == expected[0]
        assert bits == expected[1]
        preempted += engine.scheduler.preemptions
        found += engine.counters.found_tokens
        accepted += engine.counters.accepted
    assert min(preempted, found, accepted) > 0, (preempted, found, accepted)


@pytest.mark.parametrize("weights", ["bfloat16", "bfloat16_dot", "q8_0", "q4_0"])
def test_weights_of_every_kind_keep_the_promise(weights, tmp_path):
    folder, given = write_model(tmp_path, "llama"), requests(2, 5)
    expected = alone(folder, given, weights=weights)
    assert scheduled(folder, given, 3, expected[0], weights=weights)[:2] == expected


@pytest.mark.parametrize("same", [True, False])
def test_guesses_of_another_model_change_nothing(same, tmp_path):
    folder, given = write_model(tmp_path / "model", "llama"), requests(4)
    draft = folder if same else write_model(tmp_path / "draft", "llama", 7, num_hidden_layers=1)
    expected = alone(folder, given)
    engine = Watched(folder, rows=40, texts=4, speculate=3, draft=draft)
    for n, (prompt, sampling) in enumerate(given):
        engine.add(prompt, sampling, name=f"r{n}")
    assert (engine.finish(), engine.bits) == expected
    assert engine.blocks.used == 0
    counters = engine.counters
    assert counters.drafts > 20
    assert (counters.accepted > 0.5 * counters.drafts) == same
    with pytest.raises(InputError, match="61"):
        Engine(folder, speculate=2, draft=write_model(tmp_path / "other", "llama", vocab_size=64))


@pytest.mark.nightly
def test_a_hundred_schedules(tmp_path):
    for kind in (*KINDS, "slid", "biased"):
        folder, given = write_model(tmp_path / kind, kind), requests(3, 14)
        expected = alone(folder, given)
        for seed in range(100, 134):
            assert scheduled(folder, given, seed, expected[0])[:2] == expected


def test_a_step_is_a_value():
    step = ServingStep((TextPiece(3, 0, tuple(range(40)), (7, 2), 1), TextPiece(9, 31, (5, 6), (1, 4), 2)))
    assert ServingStep.of(step.words()) == step
    assert (step.rows, step.answers) == (42, 3)


def test_the_proof_finds_steps_that_are_wrong():
    texts = {0: list(range(50)), 1: list(range(40)), 2: [*range(32), 60, 61]}
    begin = ServingStep((TextPiece(0, 0, tuple(range(40)), (7, 2), 1),))
    wrong = {
        "two texts": ServingStep((TextPiece(1, 0, (0,), (3,), 0), TextPiece(2, 0, (0,), (3,), 0))),
        "another text reads": ServingStep((TextPiece(0, 40, (40,), (7, 2), 0), TextPiece(1, 0, (0,), (7,), 0))),
        "that of another text": ServingStep((TextPiece(2, 33, (61,), (7, 2), 1),)),
        "computed twice": ServingStep((TextPiece(0, 39, (39, 40), (7, 2), 1),)),
        "blocks for": ServingStep((TextPiece(0, 40, (40,), (7,), 1),)),
        "at most": ServingStep((TextPiece(0, 40, tuple(range(99)), (7, 2, 3, 4, 5), 1),)),
        "twice in it": ServingStep((TextPiece(1, 0, (0,), (3,), 0), TextPiece(1, 0, (0,), (4,), 0))),
        "is written for two": ServingStep((TextPiece(1, 0, tuple(range(40)), (3, 3), 0),)),
    }
    for said, step in wrong.items():
        proof = StepReplay(9, 60)
        proof.run(begin, texts)
        with pytest.raises(InputError, match=said):
            proof.run(step, texts)
    proof = StepReplay(9, 60)
    proof.run(begin, texts)
    proof.run(
        ServingStep((TextPiece(1, 32, (32,), (7, 3), 1), TextPiece(0, 40, (40,), (7, 2), 1))), texts
    )  # a prefix that is shared
