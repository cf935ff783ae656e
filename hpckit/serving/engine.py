"""The engine: requests in, tokens out, a step at a time.

    engine = hp.serving.Engine("runs/train-001")
    for completion in engine.generate(["To be", "or not"], hp.serving.Sampling(max_tokens=20)):
        print(completion.text)

On several ranks rank 0 makes the engine's calls, and the others are in `follow`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hpckit.errors import InputError
from hpckit.kernels.nn.paged.pages import PAGE
from hpckit.serving.blocks import Blocks
from hpckit.serving.checkpoint.folder import model_folder, spoken
from hpckit.serving.checkpoint.shape import read_shape
from hpckit.serving.checkpoint.weights import Weights
from hpckit.serving.events import Completion, Counters, EngineListener, Event
from hpckit.serving.model import ServedModel
from hpckit.serving.sample import SampleState
from hpckit.serving.sampler import Floats, Sampling, seed_of
from hpckit.serving.scheduler import Scheduler, Text
from hpckit.serving.speculation import Draft, GuessCost, guessed
from hpckit.serving.step import HEAD, ServingStep, TextPiece
from hpckit.serving.team import Team
from hpckit.serving.text import TextStream, ends_of

if TYPE_CHECKING:
    from mpi4py import MPI

MOST_KV_BYTES = 4 << 30  # of keys and values, where nothing else is said


class Engine:
    """Serves the model in a folder: a run directory of `train`, or one of Hugging Face (`shape.KINDS`); or a GGUF file.

    weights: a kind of the tile ("float32", "bfloat16", "bfloat16_dot", "q8_0", "q4_0"); by default that of the file.
    rows: most tokens of a step. texts: most texts that run at once. kv_tokens: room for keys and values, by default
    that of all texts, up to 4 GiB. chunk: most tokens of one prompt in a step beside other texts. speculate: tokens
    that are guessed from the text itself, or by the model `draft` of the same tokens (`speculation`). prefixes: whether
    texts find what others have computed.
    comm: ranks, each with its columns of every weight. Collective. replicas: so many groups of these ranks compute
    texts beside each other, each with all columns; weights, keys and values exist once for all of them, `rows` are
    those of each. stages: groups of ranks on one node each, with consecutive layers each; 0 for one stage a node.

    Raises `InputError` for a folder that cannot be served.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        weights: str = "",
        rows: int = 512,
        texts: int = 32,
        kv_tokens: int | None = None,
        chunk: int | None = None,
        speculate: int = 0,
        draft: str | Path | None = None,
        prefixes: bool = True,
        comm: MPI.Comm | None = None,
        replicas: int = 1,
        stages: int = 0,
    ) -> None:
        self.folder = model_folder(Path(folder))
        shape = self.shape = read_shape(self.folder)
        given = {"rows": rows, "texts": texts, "chunk": chunk, "kv_tokens": kv_tokens, "speculate": speculate}
        wrong = [f"{name} = {it}" for name, it in given.items() if it is not None and it < (name != "speculate")]
        if wrong:
            raise InputError(f"an engine with {', '.join(wrong)}", do="give 1 or more; speculate may be 0")
        if draft is not None:
            drafting = model_folder(Path(draft))
            if read_shape(drafting).vocab != shape.vocab or not speculate:
                raise InputError(
                    f"{speculate} guesses of {draft}, which has {read_shape(drafting).vocab} tokens, for a model of"
                    f" {shape.vocab}",
                    do="give a model with the same tokenizer, and 1 guess or more",
                )
        self.team = Team(comm, replicas, stages)
        most = self.team.stages * MOST_KV_BYTES // shape.kv_bytes
        room = kv_tokens or min(texts * shape.context, max(shape.context, most))
        self.blocks = Blocks(-(-room // PAGE))
        answers = min(rows, texts * (1 + speculate))
        self.weights = Weights(self.folder, shape, weights, self.team)
        self.model = ServedModel(self.weights, self.team, self.blocks.count, rows, answers)
        self.team.make_room(1 + texts * (HEAD + -(-shape.context // PAGE)) + rows * replicas, rows, shape.width)
        self.scheduler = Scheduler(self.blocks, rows, answers, texts, chunk, replicas, self.team.stages)
        self._begun: deque[ServingStep] = deque()  # steps under way, as many as there are stages
        self.speculate, self._prefixes = speculate, prefixes
        self.tokenizer, self.chat = spoken(self.folder)
        self.ends = tuple(dict.fromkeys((*shape.end, *ends_of(self.folder))))
        self.counters, self.guess_cost = Counters(), GuessCost()
        self.listener: EngineListener | None = None
        self._samples: dict[int, SampleState] = {}
        self._made = 0
        self._draft = None
        if draft is not None and not self.team.rank:
            self._draft = Draft(Engine(drafting, weights=weights, rows=rows, texts=texts, kv_tokens=room))

    @property
    def idle(self) -> bool:
        """Whether no text waits or runs."""
        return not self._samples

    @property
    def longest(self) -> int:
        """The most tokens of a text, written ones included."""
        return min(self.shape.context, self.blocks.count * PAGE)

    def encode(self, text: str, special: bool = True) -> list[int]:
        """The tokens of a text; special: with the mark of its start, where the tokenizer has one.

        Raises `InputError` where the model has no such tokens.
        """
        try:
            tokens = self.tokenizer.encode(text, special).tolist()
        except UnicodeEncodeError:
            raise InputError("the text has half of a character (a surrogate)", do="send whole characters") from None
        if tokens and max(tokens) >= self.shape.vocab:
            raise InputError(
                f"the tokenizer has tokens up to {max(tokens)}, and the model {self.shape.vocab}",
                likely="its tokenizer.json is missing",
                do="put the tokenizer.json of the model beside its config.json",
            )
        return tokens

    def add(
        self,
        prompt: str | Sequence[int],
        sampling: Sampling | None = None,
        *,
        name: str | None = None,
        priority: int = 0,
        salt: str = "",
    ) -> str:
        """A request that waits from now on; returns its name. salt: a tenant that shares no blocks with others.

        Raises `InputError` for values that cannot be, and for texts that are longer than the model's context.
        """
        sampling = sampling or Sampling()
        tokens = self.encode(prompt) if isinstance(prompt, str) else [int(token) for token in prompt]
        self.check(tokens, sampling)
        name = f"request-{self._made}" if name is None else name
        seed = seed_of(name) if sampling.seed is None else sampling.seed
        leader = None
        for number in range(sampling.n):
            own = salt if self._prefixes else f"{salt}/{self._made}"
            text = Text(self._made, list(tokens), len(tokens), priority, own, leader, sampling.prompt_logprobs)
            leader = leader or text
            self._samples[text.number] = SampleState(
                name, number, text, sampling, seed, TextStream(self.tokenizer, sampling.stop)
            )
            self._made += 1
            self.scheduler.add(text)
        if self.listener is not None:
            self.listener.added(name, sampling.n)
        return name

    def check(self, tokens: Sequence[int], sampling: Sampling) -> None:
        """Raise the `InputError` of `add`, without adding anything."""
        sampling.check(self.shape.vocab)
        if not tokens or min(tokens) < 0 or max(tokens) >= self.shape.vocab:
            raise InputError(f"a prompt has tokens from 0 to {self.shape.vocab - 1}, and at least one")
        if len(tokens) + sampling.max_tokens > self.longest:
            raise InputError(
                f"{len(tokens)} tokens and {sampling.max_tokens} more, where a text has at most {self.longest}",
                do=f"give a shorter prompt, or max_tokens of at most {max(0, self.longest - len(tokens))}",
            )

    def abort(self, name: str) -> None:
        """End all samples of a request and free their blocks."""
        for sample in [one for one in self._samples.values() if one.request == name]:
            self.counters.aborted += 1
            self._end(sample)
        if self.listener is not None:
            self.listener.aborted(name)

    def step(self) -> list[Event]:
        """Compute one step, and return what it brought; nothing where no text waits."""
        begin = time.perf_counter()
        while len(self._begun) < self.team.stages and (planned := self._planned()):
            self._begun.append(planned)
        if not self._begun:
            return []
        step, logits = self._computed()
        events, row = list[Event](), 0
        for piece in step.pieces:
            sample = self._samples.get(piece.text)  # None where the request was aborted meanwhile
            if sample is not None:
                brought, accepted = self._answered(sample, piece, logits[row : row + piece.answers])
                events += brought
                if piece.answers:
                    self.scheduler.done(piece, sample.text, accepted)
                if sample.reason:
                    self._end(sample)
                    self.counters.finished += 1
            row += piece.answers
        self.counters.steps += 1
        seconds = time.perf_counter() - begin
        if self.speculate and all(piece.answers == len(piece.tokens) <= 1 + self.speculate for piece in step.pieces):
            self.guess_cost.took(seconds, len(step.pieces), sum(piece.answers > 1 for piece in step.pieces))
        self.counters.seconds += seconds
        if self.listener is not None:
            self.listener.stepped(step, events, seconds)
        return events

    def _planned(self) -> ServingStep | None:
        """The next step, which the other stages may begin with; None where there is nothing to compute."""
        if self.speculate:
            free = [text for text in self.scheduler.running if not text.awaited]
            at_end = [text for text in free if len(text.tokens) - text.computed == 1]
            self._give_guesses([self._samples[text.number] for text in at_end])
        step = self.scheduler.plan()
        if step is not None:
            self.team.send(step.words())
            self.scheduler.begin(step, [self._samples[piece.text].text for piece in step.pieces])
        return step

    def _computed(self) -> tuple[ServingStep, Floats]:
        """The oldest step under way, and its logits."""
        step = self._begun.popleft()
        if self.team.size > 1:
            self.team.tell(step.words())
        return step, self.model.run(step)

    def generate(
        self, prompts: Sequence[str | Sequence[int]], sampling: Sampling | Sequence[Sampling] | None = None
    ) -> list[Completion]:
        """The completions of all prompts, in their order, `n` of each. Collective: an empty list on ranks above 0."""
        if self.team.rank:
            self.follow()
            return []
        try:
            each = [sampling] * len(prompts) if sampling is None or isinstance(sampling, Sampling) else list(sampling)
            for prompt, one in zip(prompts, each, strict=True):
                self.add(prompt, one)
            samples = list(self._samples.values())
            found = {(one.request, one.number): one.completion() for one in samples}
            while not self.idle:
                for event in self.step():
                    found[event.request, event.sample].add(event)
            return [found[one.request, one.number] for one in samples]
        finally:
            self.close()

    def warm(self) -> None:
        """On rank 0: compile what steps need on all ranks, by short texts that leave nothing behind, so that the first
        client does not wait for it.
        """
        if self.longest >= 5:
            for replica in range(self.team.replicas):
                self.add([0, 0, 0], Sampling(max_tokens=2), name=f"warm-{replica}")
            while not self.idle:
                self.step()
            self.counters, self.guess_cost = Counters(), GuessCost()

    def follow(self) -> None:
        """On ranks above 0: run the steps that rank 0 sends, until it closes the engine."""
        while len(words := self.team.hear()):
            self.model.run(ServingStep.of(words))
        self.team.finish()

    def close(self) -> None:
        """On rank 0: make the other ranks leave `follow`, and end the texts under way."""
        for sample in list(self._samples.values()):
            self._end(sample)
        while self._begun:  # the other stages compute them anyway
            self._computed()
        self.team.send(np.zeros(0, np.int64))
        self.team.tell(np.zeros(0, np.int64))
        self.team.finish()

    def _give_guesses(self, samples: Sequence[SampleState]) -> None:
        """Give texts their guesses, by the model `draft` or from each text itself."""
        if self._draft is None:
            guesses = [self._guesses(sample) for sample in samples]
        else:
            guesses = self._draft.guesses([sample.wanted(self.speculate) for sample in samples])
        for sample, found in zip(samples, guesses, strict=True):
            sample.text.drafts = found

    def _guesses(self, sample: SampleState) -> tuple[int, ...]:
        """Guesses for a text from its own tokens."""
        wanted = sample.wanted(self.speculate)
        return guessed(wanted.tokens, wanted.most) if wanted.most else ()

    def _answered(self, sample: SampleState, piece: TextPiece, logits: Floats) -> tuple[list[Event], int]:
        """What a piece brought, and how many of its tokens count."""
        text, counters = sample.text, self.counters
        drafts = piece.tokens[len(text.tokens) - piece.start :]
        sample.keep_prompt(piece, logits)
        counters.prompt_tokens += max(0, min(piece.end, text.prompt) - piece.start)
        if piece.end < len(text.tokens):
            return [], len(piece.tokens)
        if not text.count:
            counters.found_tokens += text.found
        if not sample.sampling.max_tokens:
            return [sample.without_tokens()], len(piece.tokens)
        events, matched = list[Event](), 0
        for n, row in enumerate(logits[len(logits) - 1 - len(drafts) :]):
            event = sample.next(row, self.ends)
            events.append(event)
            if sample.reason or n == len(drafts) or event.token != drafts[n]:
                break
            matched += 1
        counters.written_tokens += len(events)
        counters.drafts += len(drafts)
        counters.accepted += matched
        if self.speculate:
            sample.credit = self.guess_cost.credit(sample.credit, len(events), matched, bool(drafts))
        text.drafts = ()
        return events, len(piece.tokens) - len(drafts) + matched

    def _end(self, sample: SampleState) -> None:
        self.scheduler.drop(sample.text)
        self._samples.pop(sample.text.number, None)
