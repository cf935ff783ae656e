"""The verb `generate`, and ranks: the same bits on any number of them."""

from __future__ import annotations

import json

import pytest
from models import write_model

from hpckit.cli.main import main


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for kind in ("gpt2", "llama", "mixtral"):
        write_model(folder / kind, kind)
    return folder


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_have_the_bits_of_one(ranks, folders, mpirun):
    assert "good" in mpirun(ranks, "serving_ranks.py", folders, timeout=100).stdout


@pytest.mark.nightly
def test_four_ranks_have_the_bits_of_one(folders, mpirun):
    assert "good" in mpirun(4, "serving_ranks.py", folders, timeout=200).stdout


def test_generate_writes_a_line_for_each_sample(tmp_path, capsys):
    folder, prompts = write_model(tmp_path / "model", "llama", vocab_size=256), tmp_path / "prompts.jsonl"
    chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}
    lines = ["To be", {"prompt": "or not", "n": 2, "temperature": 1, "max_tokens": 5}, chat]
    prompts.write_text("\n".join(json.dumps(line) for line in lines) + "\n\n")
    words = ["generate", str(folder), str(prompts), "--max-tokens", "4", "--seed", "1"]
    assert main([*words, "--out", str(tmp_path / "out.jsonl")]) == 0
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [(one["index"], one["sample"], one["usage"]["completion_tokens"]) for one in found] == [
        (0, 0, 4),
        (1, 0, 5),
        (1, 1, 5),
        (2, 0, 3),
    ]
    assert found[1]["text"] != found[2]["text"]
    capsys.readouterr()
    assert main(words) == 0  # the same seed, the same text
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == found


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('"a"\n5', "line 2 of"),
        ("", "has no prompt"),
        ('{"prompt": "a", "temperature": -1}', "prompt 0: a request with temperature = -1"),
        ('{"prompt": "a", "top_p": "x"}', "top_p"),
        ('{"prompt": ""}', "at least one"),
        ('{"prompt": "a", "max_tokens": 1000}', "where a text has at most 256"),
        ('{"prompt": ["a", "b"]}', "is a list of texts"),
    ],
)
def test_prompts_that_cannot_be_are_refused(line, said, tmp_path, capsys):
    folder, prompts = write_model(tmp_path / "model", "llama", vocab_size=256), tmp_path / "prompts.jsonl"
    prompts.write_text(line)
    assert main(["generate", str(folder), str(prompts)]) == 2
    assert said in capsys.readouterr().err


def test_models_that_cannot_be_served_are_refused(tmp_path, capsys):
    (tmp_path / "p.jsonl").write_text('"a"')
    folder = write_model(tmp_path / "model", "llama")
    config = json.loads((folder / "config.json").read_text())
    for changed, said in (
        ({"model_type": "bert"}, "of the kind 'bert'"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "rotary positions of the kind yarn"),
        ({"hidden_act": "gelu"}, "activation gelu"),
        ({"intermediate_size": 40}, "does not fit its config.json"),
        ({"num_hidden_layers": None}, "does not describe a language model"),
    ):
        (folder / "config.json").write_text(json.dumps(config | changed))
        assert main(["generate", str(folder), str(tmp_path / "p.jsonl")]) == 2
        assert said in capsys.readouterr().err
    assert main(["generate", str(tmp_path / "none"), str(tmp_path / "p.jsonl")]) == 2
    assert main(["generate", str(tmp_path), str(tmp_path / "p.jsonl"), "-n", "0"]) == 2
