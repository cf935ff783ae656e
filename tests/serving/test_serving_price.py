"""The price of a server: bytes by counting, seconds by the bandwidth and by the peak of a machine."""

from __future__ import annotations

import json

import pytest
from models import write_model

from hpckit.cli.main import main
from hpckit.errors import InputError
from hpckit.plan.machine.machine import machine_of
from hpckit.plan.pricing import price as priced
from hpckit.serving.checkpoint.shape import read_shape
from hpckit.serving.checkpoint.weights import Weights
from hpckit.serving.plan.places import Places
from hpckit.serving.plan.price import ROWS, ComputeTimes, Rates, full_step, machine_of_rates, rates_of, serving_price

MACHINE = """
name = "mine"
overhead = 1e-6
reduction = 1e9
[compute]
peak = 1e11
memory = 1e10
bandwidth = 2e10
[[level]]
name = "node"
latency = 1e-6
bandwidth = 1e10
"""


def test_bytes_and_seconds_are_those_of_the_formulas(tmp_path):
    sizes = {"vocab_size": 64, "hidden_size": 96, "intermediate_size": 128, "head_dim": 32}  # whole panels
    folder = write_model(tmp_path / "model", "llama", **sizes)
    shape = read_shape(folder)
    weights = Weights(folder, shape)
    rates = Rates((1e-9,) * len(ROWS), 0.0)
    found = serving_price(shape, "float32", 1, rates, context=64, texts=4)
    assert found.weights == weights.nbytes
    assert found.kv == 2 * 4 * shape.layers * shape.kv_heads * shape.head_width * 64 * 4
    assert found.decode[1] == pytest.approx(1e-9 * (found.weights + found.kv / 4))
    assert found.decode[4] == pytest.approx(1e-9 * (found.weights + found.kv))
    two = serving_price(shape, "float32", 2, rates, context=64, texts=4)
    assert two.decode[1] == pytest.approx(found.decode[1] / 2)
    assert (
        serving_price(shape, "float32", 2, Rates(rates.seconds, 1.0), context=64, texts=4).decode[1] > 4 * shape.layers
    )


def test_scores_of_attention_cost_what_they_take(tmp_path):
    shape = read_shape(write_model(tmp_path / "model", "llama", vocab_size=64))
    free, dear = (Rates((0.0,) * len(ROWS), 0.0, score=score) for score in (0.0, 1.0))
    each = shape.layers * shape.heads * shape.head_width
    for ranks in (1, 2):
        found = serving_price(shape, "float32", ranks, dear, context=200, texts=3, rows=150)
        assert found.decode[3] == 3 * 200 * each / ranks
        assert (
            found.first[200] == (150 * 75 + 50 * 175) * each / ranks
        )  # each row sees half of its piece, and what is before
    assert serving_price(shape, "float32", 1, free, context=200, texts=3).first[200] == 0
    places, step = Places(), full_step(Places(), 2, 64, 20)
    told = priced(ComputeTimes(shape, "float32", 1, dear).plan(places, step), machine_of_rates(dear, places)).seconds
    assert told == pytest.approx(((63 + 0.5) + 19 * (45 + 19 / 2)) * each)


def test_stages_work_on_steps_of_their_own(tmp_path):
    sizes = {"vocab_size": 64, "hidden_size": 96, "intermediate_size": 128, "head_dim": 32, "num_hidden_layers": 5}
    shape = read_shape(write_model(tmp_path / "model", "llama", **sizes))
    rates = Rates((1e-9,) * len(ROWS), 0.0, latency=1.0, bandwidth=4 * 96.0)
    options = {"context": 64, "texts": 4}
    one, two = (serving_price(shape, "float32", 2, rates, stages=stages, **options) for stages in (1, 2))
    assert shape.layers_of(2) == [range(3), range(3, 5)]
    assert [len(layers) for layers in shape.layers_of(3)] == [2, 2, 1]  # and the head
    per_layer = (
        1e-9 * (shape.kv_bytes * 64 + 4 * sum(a * b * n for n, a, b in shape.matrices().values()) - 4 * 96 * 64) / 5
    )
    assert two.decode[1] == pytest.approx(
        5 * per_layer + 1e-9 * 4 * 96 * 64 + 3
    )  # a row to the second stage, and the plan to the first
    weights = [sum(4 * a * b * n for name, (n, a, b) in shape.matrices().items() if name != "head") * 3 / 5]
    assert two.weights == pytest.approx(weights[0])
    assert two.kv == pytest.approx(
        one.kv * 2 * 3 / 5
    )  # a rank of the first stage has three layers, and no other rank beside it
    assert two.decode[4] == pytest.approx(2 * (3 * per_layer + 3 * 1e-9 * shape.kv_bytes * 64 / 5 + 1 + 2))
    with pytest.raises(InputError, match="6 stages for 5 layers"):
        shape.layers_of(6)


def test_a_step_as_a_plan_has_the_price_of_the_formulas(tmp_path):
    sizes = {"vocab_size": 64, "hidden_size": 96, "intermediate_size": 128, "head_dim": 32, "num_hidden_layers": 5}
    rates = Rates(tuple(1e-9 * n for n in range(1, 7)), 1e-6, 1e-5, 1e9)
    for kind in ("llama", "mixtral"):
        shape = read_shape(write_model(tmp_path / kind, kind, **sizes))
        for ranks, stages in ((1, 1), (2, 1), (4, 2)):
            places, step = Places(ranks, stages), full_step(Places(), 1, 64, 8)
            plan = ComputeTimes(shape, "float32", places.columns, rates).plan(places, step)
            told = priced(plan, machine_of_rates(rates, places)).seconds
            formula = serving_price(shape, "float32", ranks, rates, context=64, texts=1, stages=stages).decode[1]
            assert told == pytest.approx(formula, rel=0.03)
    busy = full_step(Places(4, 1, 2), 5, 64, 20)
    assert [len(piece.tokens) for piece in busy.pieces] == [1, 1, 18, 1, 19]


def test_experts_that_no_token_chose_are_not_read(tmp_path):
    shape = read_shape(write_model(tmp_path / "model", "mixtral"))
    rates = Rates((1.0,) * len(ROWS), 0.0)
    matrices = {name: 4 * count * a * b for name, (count, a, b) in shape.matrices().items()}
    experts = matrices["up"] + matrices["down"]
    found = serving_price(shape, "float32", 1, rates, context=32, texts=1)
    assert found.decode[1] - found.kv == pytest.approx(sum(matrices.values()) - experts / 2)


def test_the_verb_and_machines(tmp_path, capsys):
    folder = write_model(tmp_path / "model", "llama")
    (tmp_path / "mine.toml").write_text(MACHINE)
    rates = rates_of(machine_of(tmp_path / "mine.toml"), "bfloat16")
    assert rates.seconds[0] == 1 / 2e10
    assert rates.seconds[-1] == 2 * 512 / 2 / 1e11
    words = ["plan", "serve", str(folder), "--machine", str(tmp_path / "mine.toml"), "--ranks", "2"]
    assert main([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["weights"]["q8_0"]["weights_bytes"] < told["weights"]["float32"]["weights_bytes"]
    assert main(words) == 0
    assert "-n 4" in capsys.readouterr().out
    assert main([*words, "--context", "100000"]) == 2
    step = [*words[:-1], "4", "--stages", "2", "--texts", "3"]
    capsys.readouterr()
    assert main([*step, "--prove", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["step"]
    assert 0 < told["busy"] < told["seconds"]
    assert main([*step, "--draw"]) == 0
    assert "attend 1,mixed>0" in capsys.readouterr().out
    assert main([*step, "--draw", str(tmp_path / "step.svg")]) == 0
    assert "a serving step of" in (tmp_path / "step.svg").read_text()
    assert main([*step, "--prove", "--rows", "0"]) == 2
    assert main(["plan", "serve", str(folder), "--machine", "infiniband"]) == 2
