"""The price of a server: bytes by counting, seconds by the bandwidth and by the peak of a machine."""

from __future__ import annotations

import json

import pytest
from models import write_model

from hpckit.cli.main import main
from hpckit.plan.machine.machine import machine_of
from hpckit.serving.checkpoint.shape import read_shape
from hpckit.serving.checkpoint.weights import Weights
from hpckit.serving.price import ROWS, Rates, price, rates_of

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
    found = price(shape, "float32", 1, rates, context=64, texts=4)
    assert found.weights == weights.nbytes
    assert found.kv == 2 * 4 * shape.layers * shape.kv_heads * shape.head_width * 64 * 4
    assert found.decode[1] == pytest.approx(1e-9 * (found.weights + found.kv / 4))
    assert found.decode[4] == pytest.approx(1e-9 * (found.weights + found.kv))
    two = price(shape, "float32", 2, rates, context=64, texts=4)
    assert two.decode[1] == pytest.approx(found.decode[1] / 2)
    assert price(shape, "float32", 2, Rates(rates.seconds, 1.0), context=64, texts=4).decode[1] > 4 * shape.layers


def test_experts_that_no_token_chose_are_not_read(tmp_path):
    shape = read_shape(write_model(tmp_path / "model", "mixtral"))
    rates = Rates((1.0,) * len(ROWS), 0.0)
    matrices = {name: 4 * count * a * b for name, (count, a, b) in shape.matrices().items()}
    experts = matrices["up"] + matrices["down"]
    found = price(shape, "float32", 1, rates, context=32, texts=1)
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
    assert main(["plan", "serve", str(folder), "--machine", "infiniband"]) == 2
