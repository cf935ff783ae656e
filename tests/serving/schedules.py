"""Random schedules of an engine, and what each of their requests has alone: tokens, texts, the bits of all logits."""

from __future__ import annotations

import numpy as np

from hpckit.kernels.nn.paged.pages import PAGE
from hpckit.serving import Engine, Sampling, StepReplay


class Watched(Engine):
    """An engine that keeps the bits of all logits that tokens were chosen from, and proves each step that it plans."""

    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        self.bits = {}
        self.proof = StepReplay(self.blocks.count, self.model.rows, self.team.replicas)
        plan = self.scheduler.plan

        def proved():
            step = plan()
            for text in self.scheduler.waiting:
                self.proof.dropped(text.number)
            if step is not None:
                self.proof.run(step, {number: one.text.tokens for number, one in self._samples.items()})
            return step

        self.scheduler.plan = proved

    def _next(self, sample, row):
        self.bits[sample.request, sample.number, len(sample.text.tokens)] = row.tobytes()
        return super()._next(sample, row)

    def finish(self):
        """What the samples have at their end."""
        events = []
        while not self.idle:
            events += self.step()
        return told(events)


def told(events):
    """Tokens, text, logprobs and those of the prompt by the request and the number of a sample."""
    found = {}
    for event in events:
        own = found.setdefault((event.request, event.sample), ([], [], [], []))
        for part, brought in zip(own, (event.token, event.text, event.logprobs, event.prompt), strict=True):
            part.append(brought)
    return {
        key: (tokens, "".join(text), logprobs, [one for prompt in prompts for one in prompt])
        for key, (tokens, text, logprobs, prompts) in found.items()
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
        if n % 5 == 2:
            way |= {"logprobs": 2, "prompt_logprobs": n == 2, "stop": ("7",)}
        found.append((prompt, Sampling(max_tokens=int(random.integers(1, 30)), ignore_end=True, **way)))
    return found


def alone(folder, given, **options):
    """Each request in an engine of its own, its prompt computed whole."""
    engine, answers, bits = Watched(folder, texts=2, rows=256, prefixes=False, **options), {}, {}
    for n, (prompt, sampling) in enumerate(given):
        engine.add(prompt, sampling, name=f"r{n}")
        answers |= engine.finish()
        bits |= engine.bits
    return answers, bits


def drawn(folder, seed, draft=None, **options):
    """An engine with little memory and sizes by the seed; draft: a model that guesses, for one seed in three.

    Collective over its ranks.
    """
    random = np.random.default_rng(seed)
    sizes = {
        "rows": int(random.integers(9, 50)),
        "texts": int(random.integers(2, 6)),
        "chunk": int(random.integers(3, 40)),
        "kv_tokens": int(random.integers(6, 12)) * PAGE,
        "speculate": int(random.integers(0, 4)),
    }
    if draft is not None and seed % 3 == 0:
        sizes |= {"draft": draft, "speculate": max(1, sizes["speculate"])}
    return Watched(folder, **sizes, **options)


def scheduled(engine, given, seed, answers):
    """All requests in a random order and at random steps; where no model guesses, a part of the guesses comes from the
    `answers`, with mistakes. On rank 0.
    """
    random = np.random.default_rng(seed + 1000)
    guesses = engine._guesses

    def guessed(sample):
        known, at = answers.get((sample.request, sample.number), ([],))[0], len(sample.text.written)
        own = [token if random.random() < 0.8 else 0 for token in known[at : at + engine.speculate]]
        own = own[: sample.sampling.max_tokens - at - 1]
        return tuple(own) if random.random() < 0.5 else guesses(sample)

    engine._guesses = guessed
    events, left = [], random.permutation(len(given)).tolist()
    while left or not engine.idle:
        for _ in range(int(random.integers(0, 3))):
            if left:
                n = left.pop()
                salt = str(int(random.integers(0, 4)) // 3)  # a tenant
                engine.add(*given[n], name=f"r{n}", priority=int(random.integers(0, 2)), salt=salt)
        if random.random() < 0.1:  # a client that hangs up at once
            engine.add(given[0][0], Sampling(max_tokens=5), name="gone")
            events += engine.step()
            engine.abort("gone")
        events += engine.step()
    assert engine.blocks.used == 0
    engine.blocks.check()
    answers = {key: found for key, found in told(events).items() if key[0] != "gone"}
    return answers, {key: bits for key, bits in engine.bits.items() if key[0] != "gone"}
