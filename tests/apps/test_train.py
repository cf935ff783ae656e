"""The training app: the same losses on every mesh, digits that are read, texts, mistakes explained, its report."""

from __future__ import annotations

import json
import re
from urllib.parse import unquote

import numpy as np
import pytest
from conftest import made_once
from mpi4py import MPI
from pydantic import ValidationError
from traces import arrows, check_trace

import hpckit.apps.train.report as extension
from hpckit.apps.train import trainer
from hpckit.apps.train.config import PRESETS, Config
from hpckit.apps.train.data import TextSamples, read_text
from hpckit.apps.train.layout import dry_run, layout
from hpckit.apps.train.sample import sampled
from hpckit.cli.main import main
from hpckit.comm.device import HOST
from hpckit.errors import InputError, SetupError
from hpckit.io.safetensors import Safetensors
from hpckit.io.tokenizers import Bytes, Pieces
from hpckit.nn.gpt import chosen
from hpckit.plan.pipeline.partition import TimedLayer
from hpckit.plan.pipeline.price import price_schedule
from hpckit.plan.pipeline.schedules import pipeline_schedule
from hpckit.report.build import build_report
from hpckit.training.pipeline.stage import held_bytes


@pytest.fixture
def runs(tmp_path_factory, mpirun):
    """The folder of the runs of tests/programs/train_ranks.py, which are done once."""
    return done_once(tmp_path_factory, mpirun, "short")


@pytest.fixture
def long_runs(tmp_path_factory, mpirun):
    """Those that learn a page by heart, and digits."""
    return done_once(tmp_path_factory, mpirun, "long")


def done_once(tmp_path_factory, mpirun, which):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")

    def make(folder):
        folder.mkdir()
        mpirun(2, "train_ranks.py", folder, which, timeout=280)

    return made_once(tmp_path_factory, f"train_runs_{which}", make)


def metrics(folder, name="loss"):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line[name] for line in lines if name in line]


def weights(folder):
    return Safetensors(folder / "output" / "model")


@pytest.mark.parametrize("name", ["pp", "zb", "zb_v", "recompute"])
def test_every_pipeline_has_the_bits_of_one_rank(runs, name):
    assert metrics(runs / name) == metrics(runs / "serial")
    one, other = weights(runs / "serial"), weights(runs / name)
    assert list(one) == list(other)
    for tensor in one:
        np.testing.assert_array_equal(one[tensor], other[tensor])
    for figure in ("grad_norm", "lr", "tokens", "validation_accuracy"):
        assert metrics(runs / name, figure) == metrics(runs / "serial", figure)
    assert metrics(runs / name, "validation_loss") == pytest.approx(
        metrics(runs / "serial", "validation_loss"), rel=1e-13
    )


def test_a_timeline_has_the_actions_and_messages_of_a_pipeline(runs):
    """ZB-V on 2 ranks: stages 0 and 3 on rank 0; activations and gradients go both ways, 4 microbatches a step."""
    trace = json.loads((runs / "zb_v" / "trace.json").read_text())
    check_trace(trace, 2)
    every = sorted(arrows(trace, "pipeline"))
    steps, validation = 6 * 2 * 4, 8  # messages each way
    assert every == [(0, 1)] * (steps + validation) + [(1, 0)] * (steps + validation)
    actions = [(event["pid"], event["name"]) for event in trace["traceEvents"] if event.get("cat") == "action"]
    assert {name[:2] for rank, name in actions if rank == 1} == {"1F", "1I", "1W", "2F", "2I", "2W"}
    assert len(actions) == 6 * 4 * 4 * 3
    waited = json.loads((runs / "zb_v" / "summary.json").read_text())["waits"]
    assert min(waited["seconds"]) > 0
    assert list(arrows(trace, "all_reduce"))


def test_replicas_add_up_to_one_rank(runs):
    for figure in ("loss", "grad_norm", "validation_loss"):
        assert metrics(runs / "dp", figure) == pytest.approx(metrics(runs / "serial", figure), rel=1e-11)
    one, other = weights(runs / "serial"), weights(runs / "dp")
    for tensor in one:
        np.testing.assert_allclose(one[tensor], other[tensor], rtol=0, atol=1e-11)


def test_llama_shaped_networks_train_on_a_pipeline_too(runs):
    assert metrics(runs / "llama") == metrics(runs / "llama_serial")
    assert metrics(runs / "llama")[-1] < metrics(runs / "llama")[0] - 0.5


def test_images_are_told_apart_on_a_pipeline_too(runs):
    assert metrics(runs / "mlp") == metrics(runs / "mlp_serial")
    assert metrics(runs / "mlp")[-1] < metrics(runs / "mlp")[0]


def test_a_state_goes_on_with_the_same_losses(runs):
    resumed = json.loads((runs / "resumed.json").read_text())
    same, other = resumed["zb zb"], resumed["dp zb_v"]
    assert same["four"] + same["two"] == metrics(runs / "zb")
    assert same["again"] == same["two"]
    assert other["again"] == pytest.approx(other["two"], rel=1e-11)


@pytest.mark.nightly
def test_a_page_is_learned_by_heart_and_written_verbatim(long_runs):
    """Greedily from its first nine letters; with windows that never move the network writes gibberish."""
    loss = metrics(long_runs / "by_heart")
    assert loss[0] > 5.0
    assert loss[-1] < 0.3
    text = (long_runs / "by_heart" / "output" / "sample.txt").read_text()
    assert text == (long_runs / "page.txt").read_text()[: 9 + 290]
    assert text in (long_runs / "by_heart.said").read_text()
    summary = json.loads((long_runs / "by_heart" / "summary.json").read_text())
    assert summary["text"] == text
    assert summary["tokens"] == metrics(long_runs / "by_heart", "tokens")[-1] == 16 * summary["samples"]
    assert {"output", "sample"} < summary["phases"].keys()
    assert sum(seconds[0] for seconds in summary["phases"].values()) <= summary["wall_seconds"]


def test_a_finished_network_continues_any_prompt(runs, tmp_path, capsys):
    """Weights and tokenizer from the run's output: greedily as the run itself wrote, or drawn by a seed."""
    folder, written = str(runs / "llama"), (runs / "llama" / "output" / "sample.txt").read_text()
    assert main(["sample", folder, "the ", "--tokens", "30", "--temperature", "0"]) == 0
    assert capsys.readouterr().out == written + "\n"
    drawn = [sampled(runs / "llama", "the ", tokens=40, temperature=3.0, top_k=0, seed=seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert main(["sample", folder, "the ", "--temperature", "-1"]) == 2
    assert main(["sample", str(runs / "mlp")]) == 2
    assert main(["sample", str(tmp_path)]) == 2
    assert main(["sample", str(tmp_path / "nowhere")]) == 2
    told = capsys.readouterr().err
    for part in ("--temperature is -1", "has no language model", "there is no folder"):
        assert part in told


@pytest.mark.nightly
def test_the_page_goes_on_verbatim_from_the_middle(long_runs, capsys):
    page = (long_runs / "page.txt").read_text()
    assert main(["sample", str(long_runs / "by_heart"), page[100:140], "--tokens", "120", "--temperature", "0"]) == 0
    assert capsys.readouterr().out == page[100:260] + "\n"


@pytest.mark.nightly
def test_several_runs_are_drawn_in_one_chart(runs, tmp_path, capsys):
    target = tmp_path / "page.html"
    folders = [str(runs / name) for name in ("serial", "zb", "dp")]
    assert main(["compare", *folders, "--report", str(target)]) == 0
    assert capsys.readouterr().out.strip() == str(target)
    text = target.read_text()
    loss = unquote(re.search(r'download="loss-nats.csv" href="data:text/csv;charset=utf-8,([^"]*)"', text)[1])
    assert loss.splitlines()[0] == "steps,serial,zb,dp"
    assert [float(value) for value in loss.splitlines()[6].split(",")] == pytest.approx(
        [6, *(metrics(runs / name)[5] for name in ("serial", "zb", "dp"))], rel=1e-8
    )
    assert "pipeline.schedule" in text
    assert main(["compare", *folders]) == 2


@pytest.mark.nightly
def test_digits_are_read(long_runs):
    summary = json.loads((long_runs / "cnn" / "summary.json").read_text())
    assert summary["validation"]["samples"] == 359
    assert summary["validation"]["accuracy"] >= 0.97
    answers = json.loads((long_runs / "cnn" / "output" / "answers.json").read_text())
    confusion = np.array(answers["confusion"])
    assert confusion.sum() == 359
    assert np.trace(confusion) / 359 == pytest.approx(summary["validation"]["accuracy"])
    assert len(answers["misread"]) == 359 - np.trace(confusion) > 0
    assert all(confusion[each["class"], each["answer"]] for each in answers["misread"])
    assert dict(Safetensors(long_runs / "cnn" / "output" / "model").items())["convolution.1.weight"].shape == (
        3,
        3,
        16,
        32,
    )


def test_the_report_shows_curves_a_real_step_and_memory(runs):
    page = build_report(runs / "zb", extension)
    numbers = json.loads((runs / "zb" / "report" / "report.json").read_text())
    assert {"learning", "text", "pipeline", "memory"} <= set(numbers["sections"])
    text = page.read_text()
    assert text.count("<title>0F") == 2 * 4  # each microbatch, as it was and simulated
    section = numbers["sections"]["pipeline"]
    ends = [1000 * min(1, section[key] / section[other]) for key, other in (
        ("seconds", "simulated_seconds"), ("simulated_seconds", "seconds"))]  # fmt: skip
    for end in ends:  # one time axis: the shorter of the two steps is drawn shorter
        assert text.count(f'width="{end:.2f}" height="26" fill="#f1f3f5"') >= 2
    bubble = section["bubble"]
    assert bubble["equal_times"] == price_schedule(pipeline_schedule("zb_h1", 2, 4)).bubble == 1 / 13
    assert 0 < bubble["measured"] < 1
    assert 0 < bubble["simulated"] < 1
    memory = numbers["sections"]["memory"]
    assert memory["optimizer"] == [2 * nbytes for nbytes in memory["gradients"]]
    assert text.count("activations as foreseen (MB)") == 1
    assert "report failed" not in text
    page = build_report(runs / "mlp", extension).read_text()
    assert "report failed" not in page
    assert "accuracy</span>" in page
    assert "confusion matrix" in page
    assert " read as " in page


@pytest.mark.nightly
def test_the_report_of_a_network_that_reads_digits(long_runs):
    page = build_report(long_runs / "cnn", extension).read_text()
    assert "report failed" not in page
    assert re.search(r"<b>9\d\.\d\u202f%</b><span>accuracy</span>", page)
    assert "confusion matrix" in page
    assert " read as " in page


def kept(folder):
    memory = json.loads((folder / "summary.json").read_text())["memory"]
    assert min(memory["resident"]) > 5e7
    assert memory["work"][0] > 1e6 or folder.name != "cnn"
    return np.array(memory["activations"]), np.array(memory["activations_foreseen"])


@pytest.mark.parametrize("name", ["serial", "pp", "dp", "llama", "recompute"])
def test_what_is_kept_for_backward_passes_is_weighed(runs, name):
    """The computed sizes are right to a few percent."""
    np.testing.assert_allclose(*kept(runs / name), rtol=0.12)


@pytest.mark.nightly
def test_what_a_convolution_network_keeps_is_weighed(long_runs):
    np.testing.assert_allclose(*kept(long_runs / "cnn"), rtol=0.12)


def test_a_late_w_keeps_more_and_recomputation_less(runs):
    late, foreseen = kept(runs / "zb")
    assert (late > 1.05 * foreseen).all()
    assert kept(runs / "recompute")[0][0] < 0.5 * kept(runs / "serial")[0][0]
    assert kept(runs / "pp")[0].sum() > 1.1 * kept(runs / "serial")[0][0]  # as many microbatches as ranks are under way


def test_memory_that_several_arrays_look_into_counts_once():
    block, alone = np.zeros((10, 7)), np.zeros(5, np.float32)
    assert held_bytes([]) == 0
    assert held_bytes({"a": [block[2:5], (block[4:8], None, 3)], "b": [alone, alone]}) == 6 * 7 * 8 + 20
    assert held_bytes([block, block[3:4], alone[:2]]) == 560 + 8


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_say_what_they_would_take(preset):
    settings = PRESETS[preset][1]
    if not Config.model_validate(settings).model.is_language:
        pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    plan = dry_run(Config.model_validate(settings), 2)
    assert plan.steps > 0
    assert re.search(r"\d+ parameters", plan.decomposition[0])
    assert plan.memory_per_rank > 4 * int(re.search(r"(\d+) parameters", plan.decomposition[0])[1])
    assert plan.moved == "messages"


def test_a_dry_run_tells_bubble_and_memory_of_each_stage():
    settings = {"mesh": {"pp": 2}, "batch": {"size": 16, "microbatches": 8}, "pipeline": {"schedule": "zb_h1"}}
    plan = dry_run(Config.model_validate(settings), 4)
    assert plan.decomposition[2].startswith("2 x 2 ranks (dp x pp)")
    assert any("bubble 4.00%" in note for note in plan.notes)
    assert sum("of a pipeline:" in note for note in plan.notes) == 2
    assert plan.halo_bytes > 0


def test_layers_are_dealt_to_stages_by_what_they_take(monkeypatch):
    """5 layers, of which the first is said to take as long as all others; real times are positive, and keep nothing."""
    given = {"model": {"layers": 3, "width": 8, "heads": 2, "context": 5}, "mesh": {"pp": 2}}
    config = Config.model_validate(given)
    laid = layout(config, 2)
    assert laid.plan.partition.starts == (0, 4, 5)  # the head with its 256 columns
    costs = iter([4.0, 1.0, 1.0, 1.0, 1.0])
    said = [TimedLayer(name, 0.0, 0.0, next(costs)) for name in laid.model.names]
    with monkeypatch.context() as patched:
        patched.setattr(trainer, "measure_layers", lambda *_, **options: said)
        found = trainer.balanced(config, laid, MPI.COMM_SELF, HOST)
        assert (found.plan.partition.starts, found.plan.partition.loads) == ((0, 1, 5), (4.0, 4.0))
        as_before = Config.model_validate({**given, "pipeline": {"balance": "arithmetic"}})
        assert trainer.balanced(as_before, laid, MPI.COMM_SELF, HOST) is laid
    alone = layout(Config.model_validate({**given, "mesh": {"pp": 1}}), 1)
    assert trainer.balanced(config, alone, MPI.COMM_SELF, HOST) is alone
    found = trainer.balanced(config, laid, MPI.COMM_SELF, HOST)
    assert min(found.plan.partition.loads) > 0
    assert found.plan.program is laid.plan.program
    assert all(parameter.value is None and parameter.grad is None for parameter in laid.model.parameters())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"model": {"heads": 7}}, "7 heads do not divide a width of 256: take 2, 4 or 8 heads"),
        ({"model": {"kind": "llama", "heads": 256}}, "rotary"),
        ({"model": {"kind": "llama", "kv_heads": 3}}, "3 kv_heads do not divide 8 heads"),
        ({"model": {"kv_heads": 2}}, "kv_heads belongs to llama"),
        ({"model": {"kind": "mlp", "dropout": 0.1}}, "dropout belongs to gpt2"),
        ({"model": {"kind": "cnn", "attention_dropout": 0.1}}, "attention_dropout belongs to gpt2 or llama"),
        ({"model": {"kind": "llama", "activation": "gelu"}}, "activation belongs to gpt2 or mlp"),
        ({"model": {"activation": "tanh"}}, "'relu', 'gelu', 'gelu_erf' or 'silu'"),
        ({"model": {"kind": "cnn"}, "batch": {"window": 8}}, "batch.window is for language models"),
        ({"batch": {"window": 200}}, "model.context is 128 tokens"),
        ({"optimizer": {"warmup": 300}}, "warmup is 300 of 200 steps"),
        ({"optimizer": {"betas": [0.9, 1.0]}}, "betas"),
        ({"model": {"weights": "/nowhere/at/all"}}, "no file or folder"),
    ],
)
def test_settings_that_cannot_be_are_told(settings, said):
    with pytest.raises(ValidationError, match=said):
        Config.model_validate(settings)


def test_all_that_does_not_fit_the_ranks_is_told_at_once(tmp_path):
    short = tmp_path / "short.txt"
    short.write_text("x" * 200)
    given = {
        "data": {"file": short},
        "mesh": {"dp": 2, "pp": 3},
        "batch": {"size": 7, "microbatches": 2},
        "model": {"layers": 1},
    }
    with pytest.raises(InputError) as problem:
        layout(Config.model_validate(given), 4)
    told = problem.value.message
    for part in ("20 tokens for validation", "is 6 ranks, and there are 4", "does not divide into 2 microbatches"):
        assert part in told
    given = {"mesh": {"pp": 4}, "model": {"layers": 1}}
    with pytest.raises(InputError, match="3 layers cannot be cut into pp=4 stages"):
        layout(Config.model_validate(given), 4)


def test_windows_shift_from_epoch_to_epoch():
    """Every epoch covers the whole text, and in as many epochs as a window has tokens each shift comes once."""
    tokens = np.arange(53, dtype=np.int32)
    for window, length in ((7, 53), (7, 50), (7, 51), (7, 8), (13, 53), (2, 3)):
        text = TextSamples(tokens[:length], window, seed=3)
        for epoch in range(2 * window):
            x, targets = text.take(np.arange(len(text)), epoch)
            np.testing.assert_array_equal(targets, x + 1)
            assert set(x.flat) == set(range(length - 1))
        assert sorted(text.shift(epoch) for epoch in range(window, 2 * window)) == list(range(window))
    still = TextSamples(tokens, 7)
    assert [still.shift(epoch) for epoch in range(9)] == [0] * 9
    assert still.take(np.arange(len(still)))[0][:, 0].tolist() == [0, 7, 14, 21, 28, 35, 42]
    of_seeds = {seed: [TextSamples(tokens, 13, seed).shift(epoch) for epoch in range(13)] for seed in (1, 2)}
    assert of_seeds[1] != of_seeds[2]


def test_choices_follow_the_probabilities():
    random = np.random.default_rng(2)
    logits = np.log(np.array([0.1, 0.2, 0.4, 0.3]))
    assert chosen(logits, 0, 0, random) == 2
    many = np.bincount([chosen(logits, 1.0, 0, random) for _ in range(20_000)], minlength=4) / 20_000
    np.testing.assert_allclose(many, np.exp(logits), atol=0.02)
    two = np.bincount([chosen(logits, 1.0, 2, random) for _ in range(5_000)], minlength=4) / 5_000
    np.testing.assert_allclose(two, [0, 0, 4 / 7, 3 / 7], atol=0.03)
    cold = np.bincount([chosen(logits, 0.5, 0, random) for _ in range(20_000)], minlength=4) / 20_000
    np.testing.assert_allclose(cold, np.exp(2 * logits) / np.exp(2 * logits).sum(), atol=0.02)


def test_texts_become_tokens_and_back(tmp_path):
    assert Bytes().decode(Bytes().encode("höhe 😀")) == "höhe 😀"
    assert Bytes().decode([104, 195]) == "h�"
    assert len(read_text(None)) > 500_000
    path = tmp_path / "latin.txt"
    path.write_bytes("höhe".encode("latin-1"))
    with pytest.raises(InputError, match="byte 1 is 0xf6"):
        read_text(path)


def test_tokenizer_files(tmp_path, monkeypatch):
    path = tmp_path / "tokenizer.json"
    path.write_text("{}")
    with monkeypatch.context() as without:
        without.setitem(__import__("sys").modules, "tokenizers", None)
        with pytest.raises(SetupError, match="needs the package tokenizers"):
            Pieces(path)
    package = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    with pytest.raises(InputError, match="is not a file of the package"):
        Pieces(path)
    trained = package.Tokenizer(package.models.BPE())
    trained.pre_tokenizer = package.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = package.decoders.ByteLevel()
    alphabet = package.pre_tokenizers.ByteLevel.alphabet()
    text = "the quick brown fox " * 50
    trained.train_from_iterator([text], package.trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet))
    trained.save(str(path))
    pieces = Pieces(path)
    tokens = pieces.encode(text)
    assert len(tokens) < len(text) / 2
    assert pieces.decode(tokens.tolist()) == text
    (tmp_path / "text.txt").write_text(text * 20)
    given = {"data": {"file": tmp_path / "text.txt", "tokenizer": path}, "batch": {"window": 16}}
    laid = layout(Config.model_validate(given), 1)
    assert laid.shape.vocab == pieces.vocab
    assert laid.window == 16
    trained.normalizer = package.normalizers.Strip()
    trained.save(str(path))
    with pytest.raises(InputError, match="the tokenizer has no token"):
        layout(Config.model_validate(given), 1)
