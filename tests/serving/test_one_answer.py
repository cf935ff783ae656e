"""One answer: tokens and the bits of logits are those of a request alone, prefilled whole, under every schedule."""

from __future__ import annotations

import pytest
from conftest import by_day
from models import CONFIGS, write_model
from schedules import Watched, alone, drawn, requests, scheduled

from hpckit.errors import InputError
from hpckit.serving import Engine, ServingStep, StepReplay, TextPiece


@pytest.mark.parametrize("kind", by_day(CONFIGS, "slid", "mixtral"))
def test_every_schedule_gives_the_answer_of_a_request_alone(kind, tmp_path):
    folder, given = write_model(tmp_path / "model", kind), requests(1)
    draft = write_model(tmp_path / "draft", "llama", 7, num_hidden_layers=1)
    expected = alone(folder, given)
    preempted = found = accepted = 0
    for seed in range(6):
        engine = drawn(folder, seed, draft)
        assert scheduled(engine, given, seed, expected[0]) == expected
        preempted += engine.scheduler.preemptions
        found += engine.counters.found_tokens
        accepted += engine.counters.accepted
    assert min(preempted, found, accepted) > 0, (preempted, found, accepted)


@pytest.mark.parametrize("weights", by_day(["bfloat16", "bfloat16_dot", "q8_0", "q4_0"], "q8_0"))
def test_weights_of_every_kind_keep_the_promise(weights, tmp_path):
    folder, given = write_model(tmp_path, "llama"), requests(2, 5)
    expected = alone(folder, given, weights=weights)
    assert scheduled(drawn(folder, 4, weights=weights), given, 4, expected[0]) == expected


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
@pytest.mark.parametrize("weights", ["float32", "bfloat16_dot", "q8_0", "q4_0"])
@pytest.mark.parametrize("kind", CONFIGS)
def test_many_schedules(kind, weights, tmp_path):
    folder, given = write_model(tmp_path / "model", kind), requests(3, 14)
    draft = write_model(tmp_path / "draft", "llama", 7, num_hidden_layers=1)
    expected = alone(folder, given, weights=weights)
    for seed in range(100, 130 if weights == "float32" else 110):
        assert scheduled(drawn(folder, seed, draft, weights=weights), given, seed, expected[0]) == expected


@pytest.mark.parametrize(
    ("ranks", "replicas", "stages", "kinds"),
    [
        (2, 1, 1, ["biased"]),
        *(
            pytest.param(*each, list(CONFIGS), marks=pytest.mark.nightly)
            for each in ((2, 1, 1), (2, 2, 1), (2, 1, 2), (3, 1, 1), (4, 1, 1), (4, 2, 1), (4, 2, 2), (6, 1, 2))
        ),
    ],
)
def test_ranks_give_the_answer_of_one_under_every_schedule(ranks, replicas, stages, kinds, tmp_path, mpirun):
    for kind in kinds:
        write_model(tmp_path / "models" / kind, kind)
    write_model(tmp_path / "draft", "llama", 7, num_hidden_layers=1)
    ended = mpirun(ranks, "serving_schedules.py", tmp_path, replicas, stages, timeout=400)
    assert "good" in ended.stdout


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
