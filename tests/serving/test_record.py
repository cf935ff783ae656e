"""The record of a serving run and its page: sums are those of the engine, latencies those of the texts."""

from __future__ import annotations

import json
import time

import pytest
from models import write_model

from hpckit.cli.main import main
from hpckit.serving import Engine, Sampling
from hpckit.serving.server.record import COUNTS, ServingRecord


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("record") / "small", "llama", vocab_size=256)


def lines_of(folder):
    return [json.loads(line) for line in (folder / "serving.jsonl").read_text().splitlines()]


def test_what_is_recorded_is_what_was_done(model, tmp_path, monkeypatch):
    monkeypatch.setattr("hpckit.serving.server.record.SHORTEST", 0.0)
    monkeypatch.setattr("hpckit.serving.server.record.STRETCHES", 1e9)  # a line for each step
    engine = Engine(model, texts=2, rows=64, kv_tokens=256, speculate=1)
    record = ServingRecord(tmp_path, engine, {"model": "small"})
    engine.add([1] * 40, Sampling(max_tokens=9, ignore_end=True, n=3), name="three")
    engine.add([1] * 40, Sampling(max_tokens=50), name="gone")
    engine.add([2] * 5, Sampling(max_tokens=1, ignore_end=True), name="one")
    time.sleep(0.05)
    engine.step()
    engine.abort("gone")
    while not engine.idle:
        engine.step()
    record.close()
    lines, about = lines_of(tmp_path), json.loads((tmp_path / "serving.json").read_text())
    for name in COUNTS:
        assert sum(line[name] for line in lines) == about[name] == getattr(engine.counters, name)
    assert sum(line["steps"] for line in lines) == engine.counters.steps == sum(line["steps"] > 0 for line in lines)
    rows = sum(line["rows"] * line["steps"] for line in lines)
    assert rows >= about["prompt_tokens"] + about["written_tokens"] - 4  # all but the last tokens are computed
    assert max(line["waiting"] for line in lines) >= 2
    assert lines[-1]["running"] == lines[-1]["blocks_used"] == 0
    counts = {name: each["count"] for name, each in about["latencies"].items()}
    assert counts == {"ttft": 4, "e2el": 4, "tpot": 3}
    assert 0.05 <= about["latencies"]["ttft"]["p50"] <= about["latencies"]["e2el"]["p99"] <= about["seconds"]
    assert engine.listener is None
    assert not record._arrived
    assert not record._first


def test_a_server_that_rests_has_empty_stretches(model, tmp_path):
    engine = Engine(model, texts=2)
    record = ServingRecord(tmp_path, engine, {"model": "small"})
    for _ in range(2):
        engine.add([1] * 5, Sampling(max_tokens=3, ignore_end=True))
        while not engine.idle:
            engine.step()
        time.sleep(0.25)
    record.close()
    lines = lines_of(tmp_path)
    assert [line["steps"] > 0 for line in lines if line["seconds"] > 0.2] == [False, False]
    assert sum(line["steps"] for line in lines) == engine.counters.steps
    resting = [line for line in lines if not line["steps"]]
    assert {(line["waiting"], line["running"], line["blocks_used"], line["written_tokens"]) for line in resting} == {
        (0, 0, 0, 0)
    }


def test_generate_draws_a_page_and_report_draws_it_again(model, tmp_path, capsys):
    prompts, folder = tmp_path / "p.jsonl", tmp_path / "run"
    prompts.write_text('{"prompt": "To be", "n": 2}\n"<b>"\n')
    assert main(["generate", str(model), str(prompts), "--max-tokens", "8", "--record", str(folder)]) == 0
    page = folder / "report" / "index.html"
    assert str(page) in capsys.readouterr().err
    first = page.read_text()
    for said in ("queue (texts)", "blocks (%)", "latency (ms)", "tokens a second", "TTFT", "small"):
        assert said in first
    told = json.loads((folder / "report" / "report.json").read_text())
    assert (told["finished"], told["ended"]) == (3, True)
    assert 3 <= told["written_tokens"] <= 24
    whole = (folder / "serving.jsonl").read_text()
    (folder / "serving.jsonl").write_text(whole + whole[:30])  # of a run that was killed
    page.unlink()
    assert main(["report", str(folder)]) == 0
    assert page.exists()
    (folder / "serving.jsonl").write_text(whole[:30] + "\n" + whole)
    assert main(["report", str(folder)]) == 5
    assert "not a record of a serving run" in capsys.readouterr().err
