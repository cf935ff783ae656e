"""Blocks of keys and values: no leak and no block of two texts, whatever is done; prefixes; who is evicted."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

import numpy as np
import pytest
from conftest import by_day

from hpckit.cli.main import main
from hpckit.errors import InputError, PlanError
from hpckit.kernels.nn.paged.pages import PAGE
from hpckit.plan.proving import prove
from hpckit.serving.blocks import Blocks, chain
from hpckit.serving.plan.places import Places
from hpckit.serving.plan.plan import ServingPlan
from hpckit.serving.scheduler import Scheduler, Text
from hpckit.serving.step import ServingStep, StepReplay, TextPiece
from hpckit.serving.team import Team


def computed(scheduler, step, texts, accepted):
    """The end of a step that is under way alone."""
    scheduler.begin(step, texts)
    for piece, text, count in zip(step.pieces, texts, accepted, strict=True):
        if piece.answers:
            scheduler.done(piece, text, count)


@pytest.mark.parametrize(("replicas", "stages"), by_day([(1, 1), (3, 1), (2, 3)], (2, 3)))
def test_ten_thousand_operations_leave_no_block_behind(replicas, stages):
    random = np.random.default_rng(1)
    blocks = Blocks(13)
    rows = 90 // replicas
    scheduler = Scheduler(blocks, rows, answers=12 // replicas, texts=7, chunk=33, replicas=replicas, stages=stages)
    proof = StepReplay(13, rows, replicas)
    alive: dict[int, Text] = {}
    begun: deque[ServingStep] = deque()
    together = 0
    common, made, done = random.integers(0, 9, 130).tolist(), 0, 0
    while done < 10_000:
        done += 1
        what = random.random()
        if what < 0.3 and len(alive) < 25:
            own = random.integers(0, 9, random.integers(1, 60)).tolist()
            tokens = [*common[: random.integers(0, 130)], *own]
            leader = random.choice(list(alive.values())) if alive and what < 0.03 else None
            if leader is not None:
                tokens = leader.tokens[: leader.prompt]
            text = Text(made, tokens, len(tokens), int(random.integers(0, 3)), str(made % 2), leader)
            if leader is not None:
                text.salt = leader.salt
            alive[made] = text
            scheduler.add(text)
            made += 1
        elif what < 0.36 and alive:
            text = alive.pop(int(random.choice(list(alive))))
            scheduler.drop(text)
            proof.dropped(text.number)
        else:
            for text in scheduler.running:
                if not text.awaited and len(text.tokens) - text.computed == 1:
                    text.drafts = tuple(random.integers(0, 9, random.integers(0, 4)).tolist())
            step = scheduler.plan() if len(begun) < stages else None
            for text in scheduler.waiting:
                proof.dropped(text.number)
            if step is not None:
                if done < 1500:  # the proof is slower than what it proves
                    proof.run(step, {number: text.tokens for number, text in alive.items()})
                    if done < 150:
                        prove(ServingPlan(Places(2 * stages * replicas, stages, replicas), (1,) * stages, step))
                scheduler.begin(step, [alive[piece.text] for piece in step.pieces])
                begun.append(step)
            together = max(together, len(begun))
            if begun and (step is None or len(begun) == stages):
                answered = [piece for piece in begun.popleft().pieces if piece.answers and piece.text in alive]
                for piece in answered:
                    text = alive[piece.text]
                    drafts = max(0, piece.end - len(text.tokens))
                    right = int(random.integers(0, drafts + 1))
                    guesses = piece.tokens[len(piece.tokens) - drafts :]
                    text.tokens += [*guesses[:right], guesses[right] + 1 if right < drafts else 0]
                    text.drafts = ()
                    scheduler.done(piece, text, len(piece.tokens) - drafts + right)
                    if len(text.tokens) > 220 or random.random() < 0.02:
                        scheduler.drop(alive.pop(text.number))
                        proof.dropped(text.number)
        blocks.check()
        held = [block for text in scheduler.running for block in text.blocks]
        assert blocks.used == len(set(held))
    for text in alive.values():
        scheduler.drop(text)
    assert blocks.used == 0
    assert together == stages
    assert scheduler.preemptions > 20
    assert (scheduler.moves > 20) == (replicas > 1)


def test_a_wrong_step_of_all_ranks_is_found():
    pieces = (
        TextPiece(0, 40, (1,) * 3, (0, 1), 1, 0),
        TextPiece(1, 33, (2,), (0, 2), 1, 0),  # reads the beginning of text 0
        TextPiece(2, 0, (3,) * 70, (3, 4, 5), 1, 1),
    )
    places = Places(8, 2, 2)
    plan = ServingPlan(places, (2, 1), ServingStep(pieces))
    assert prove(plan).messages == sum(int((step.sends.rank != step.sends.peer).sum()) for step in plan.steps())
    for wrong, words in (
        (replace(pieces[1], start=0, tokens=(2,) * 34), "block 0 of layer 0, which is fixed"),
        (replace(pieces[2], blocks=(3, 4, 1)), "stores into block 1 of layer 0 while it sends it"),
        (replace(pieces[1], blocks=(0, 1)), "block 1 of layer 0 while it receives twice"),
        (replace(pieces[2], blocks=(3, 4)), "2 blocks for 70 tokens"),
    ):
        others = [piece for piece in pieces if piece.text != wrong.text]
        with pytest.raises(PlanError, match=words):
            prove(replace(plan, step=ServingStep(tuple(sorted([*others, wrong], key=lambda piece: piece.replica)))))

    @dataclass(frozen=True, eq=False)
    class Hasty(ServingPlan):
        """The ranks do not wait for the columns of an array; or write into one that others read."""

        into: int = -1

        def steps(self):
            for step in super().steps():
                if step.name.startswith("raise 1") and self.into < 0:
                    nobody = (replace(ends, peer=np.full_like(ends.peer, -1)) for ends in (step.sends, step.receives))
                    step = replace(step, sends=next(nobody), receives=next(nobody))
                elif step.name.startswith("raise 1"):
                    cells = np.full_like(step.receives.cells, self.into)
                    step = replace(step, receives=replace(step.receives, cells=cells))
                yield step

    with pytest.raises(PlanError, match=r"computes lower 1 before columns .* is there"):
        prove(Hasty(places, (2, 1), ServingStep(pieces)))
    with pytest.raises(PlanError, match="column 0 of branch while it computes from it"):
        prove(Hasty(places, (2, 1), ServingStep(pieces), into=4))


def test_a_beginning_is_found_until_its_blocks_are_needed():
    blocks, text = Blocks(3), list(range(3 * PAGE))
    hashes = list(chain(text))
    own = [blocks.take() for _ in range(3)]
    for block, known in zip(own, hashes, strict=True):
        blocks.keep(block, known)
    blocks.release(own)
    assert blocks.find(hashes) == own
    assert blocks.find(list(chain([*text[: 2 * PAGE], *[0] * PAGE]))) == own[:2]
    assert blocks.find(list(chain(text, "another tenant"))) == []
    assert blocks.take() == own[2]  # the end of the text goes first
    assert blocks.find(hashes) == own[:2]
    blocks.hold(own[:1])
    assert blocks.take() == own[1]
    assert blocks.take() is None
    blocks.release(own[:1])
    with pytest.raises(ValueError, match="has no owner"):
        blocks.release(own[:1])


def test_pieces_of_a_long_prompt_run_beside_a_text_and_priorities_go_first():
    scheduler = Scheduler(Blocks(20), rows=10, answers=4, texts=3)
    short, long, urgent = Text(0, [1], 1), Text(1, [2] * 25, 25), Text(2, [3], 1, priority=-1)
    for text in (short, long, urgent):
        scheduler.add(text)
    counts = []
    for _ in range(3):
        step = scheduler.plan()
        counts.append([(piece.text, len(piece.tokens), piece.answers) for piece in step.pieces])
        texts = [(short, long, urgent)[piece.text] for piece in step.pieces]
        for piece, text in zip(step.pieces, texts, strict=True):
            text.tokens += [4] * piece.answers
        computed(scheduler, step, texts, [len(piece.tokens) for piece in step.pieces])
    assert counts == [
        [(2, 1, 1), (0, 1, 1), (1, 8, 0)],
        [(2, 1, 1), (0, 1, 1), (1, 8, 0)],
        [(2, 1, 1), (0, 1, 1), (1, 8, 0)],
    ]


def test_without_blocks_the_last_text_is_computed_again_later():
    scheduler = Scheduler(Blocks(2), rows=2 * PAGE, answers=4, texts=3)
    texts = [Text(n, [n] * PAGE, PAGE) for n in range(2)]
    for text in texts:
        scheduler.add(text)
    step = scheduler.plan()
    for text in texts:
        text.tokens.append(9)
    computed(scheduler, step, texts, [PAGE, PAGE])
    step = scheduler.plan()  # each wants a second block
    assert [piece.text for piece in step.pieces] == [0]
    assert scheduler.waiting == [texts[1]]
    assert texts[1].blocks == []
    computed(scheduler, step, texts[:1], [1])
    scheduler.drop(texts[0])
    assert [len(piece.tokens) for piece in scheduler.plan().pieces] == [PAGE + 1]


def test_a_text_goes_to_the_replica_of_its_beginning_unless_that_has_more_to_do():
    scheduler = Scheduler(Blocks(40), rows=4 * PAGE, answers=8, texts=9, replicas=2)

    def step(*texts):
        for text in texts:
            scheduler.add(text)
        plan = scheduler.plan()
        for text in texts:
            text.tokens.append(5)
        computed(scheduler, plan, texts, [len(piece.tokens) for piece in plan.pieces])
        return [text.replica for text in texts]

    first = [Text(n, [n] * (2 * PAGE + 1), 2 * PAGE + 1) for n in range(2)]
    assert step(*first) == [0, 1]
    for text in first:
        scheduler.drop(text)
    again = [Text(n, [n % 2] * (2 * PAGE) + [7] * 9, 2 * PAGE + 9) for n in (3, 2, 5, 7, 9)]
    assert step(*again)[:4] == [1, 0, 1, 1]  # each where its beginning is
    crowd = [Text(n, [1] * (2 * PAGE) + [8] * (PAGE - 2), 3 * PAGE - 2) for n in (11, 13, 15)]
    for text in again:
        scheduler.drop(text)
    assert set(step(*crowd)) == {0, 1}
    for text in scheduler.running:
        text.replica = 1
    loads = [piece.replica for piece in scheduler.plan().pieces]
    assert sorted(loads) in ([0, 0, 1], [0, 1, 1])  # one more or less
    assert scheduler.moves == 1


def test_ranks_that_are_no_replicas_are_refused(tmp_path, capsys):
    prompts = tmp_path / "p.jsonl"
    prompts.write_text('"a"')
    assert main(["generate", "none", str(prompts), "-n", "4", "--replicas", "3"]) == 2
    assert "1 or 2 or 4 replicas" in capsys.readouterr().err
    assert main(["generate", "none", str(prompts), "-n", "2", "--replicas", "0"]) == 2
    with pytest.raises(InputError, match="2 equal replicas"):
        Team(None, 2)
