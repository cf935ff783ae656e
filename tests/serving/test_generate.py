"""The verb `generate`, and ranks: the same bits on any number of them."""

from __future__ import annotations

import json

import pytest
from conftest import by_day
from models import write_model

from hpckit.cli.main import main
from hpckit.errors import InputError
from hpckit.serving import Engine, Sampling
from hpckit.serving.events import Counters
from hpckit.serving.server.protocol import request_of
from hpckit.serving.speculation import GuessCost


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for kind in ("gpt2", "llama", "mixtral"):
        write_model(folder / kind, kind, **({"n_layer": 3} if kind == "gpt2" else {"num_hidden_layers": 3}))
    return folder


@pytest.mark.parametrize(
    ("ranks", "replicas", "stages", "how"),
    by_day(
        [
            (2, 1, 0, "brief"),
            *(
                (*each, "whole")
                for each in (
                    *((2, 1, 0), (2, 2, 1), (2, 1, 1), (3, 1, 1), (4, 1, 1), (4, 2, 1), (3, 3, 1), (4, 1, 0)),
                    *((4, 2, 2), (6, 1, 2), (3, 1, 3)),
                )
            ),
        ],
        (2, 1, 0, "brief"),
    ),
)
def test_ranks_replicas_and_stages_have_the_bits_of_one(ranks, replicas, stages, how, folders, mpirun):
    ended = mpirun(ranks, "serving_ranks.py", folders, replicas, stages, how, timeout=200)
    assert "good" in ended.stdout
    assert "never waited for" not in ended.stderr


def test_a_plan_is_heard_before_the_next_is_told(mpirun):
    assert "good" in mpirun(2, "serving_team.py", timeout=60).stdout


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


def test_a_line_has_the_prompt_and_the_logprobs_that_were_asked_for(tmp_path, capsys):
    folder, prompts = write_model(tmp_path / "model", "llama", vocab_size=256), tmp_path / "prompts.jsonl"
    lines = [
        {"prompt": "To be", "logprobs": 2, "echo": True},
        {"messages": [{"role": "user", "content": "Hi"}], "logprobs": True, "top_logprobs": 3},
        "To be",
    ]
    prompts.write_text("\n".join(json.dumps(line) for line in lines))
    assert main(["generate", str(folder), str(prompts), "--max-tokens", "4"]) == 0
    echoed, chat, plain = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert "logprobs" not in plain
    assert echoed["text"] == "To be" + plain["text"]
    told = echoed["logprobs"]
    assert told["tokens"][:5] == list("To be")
    assert told["token_logprobs"][0] is None
    assert [len(each) for each in told["top_logprobs"][-4:]] == [2] * 4  # greedy: the chosen one is among them
    assert [len(each["top_logprobs"]) for each in chat["logprobs"]["content"]] == [3] * 4


def test_a_prompt_begins_as_the_tokenizer_says_and_a_chat_as_its_template(tmp_path):
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    folder = write_model(tmp_path / "model", "llama")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<s>": 0, "a": 1, "user": 2, "?": 3}, unk_token="?"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.add_special_tokens(["<s>"])
    made.post_processor = tokenizers.processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 0)])
    made.save(str(folder / "tokenizer.json"))
    template = "{{ bos_token }}{% for one in messages %}{{ one.role }} {{ one.content }} {% endfor %}"
    told = {"chat_template": template, "bos_token": {"content": "<s>"}}
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 8]}))
    engine = Engine(folder, texts=1)
    assert engine.ends == (7, 8)
    assert request_of({"prompt": "a a"}).prompts(engine) == [[0, 1, 1]]
    assert request_of({"prompt": ["a", [5, 6]], "add_special_tokens": False}).prompts(engine) == [[1], [5, 6]]
    chat = {"messages": [{"role": "user", "content": "a"}]}
    assert request_of(chat).prompts(engine) == [[0, 2, 1]]
    (folder / "chat_template.jinja").write_text("{{ raise_exception('no chats') }}")
    with pytest.raises(InputError, match="no chats"):
        request_of(chat).prompts(Engine(folder, texts=1))


@pytest.mark.parametrize("cost", [0.1, 0.25, 3.0])
def test_guesses_that_fail_cost_little(cost, tmp_path, monkeypatch):
    engine = Engine(write_model(tmp_path, "llama"), texts=1, speculate=2)
    monkeypatch.setattr(engine.guess_cost, "took", lambda *given: None)
    engine.guess_cost._costs.extend([cost] * 9)
    asked = []

    def wrong(tokens, count):
        asked.append(len(tokens))
        return (60,) * count

    monkeypatch.setattr("hpckit.serving.engine.guessed", wrong)
    engine.add([1, 2, 3], Sampling(max_tokens=150, ignore_end=True))
    while not engine.idle:
        engine.step()
    assert engine.counters.written_tokens == 150
    assert asked[0] == 4
    assert cost * (len(asked) - 1) <= 0.01 * 150
    assert cost * (len(asked) + 1) > 0.01 * 150


def test_right_guesses_go_on_and_their_cost_is_measured(tmp_path, monkeypatch):
    folder, way = write_model(tmp_path, "llama"), Sampling(max_tokens=40, ignore_end=True)
    known = Engine(folder, texts=1).generate([[1, 2, 3]], way)[0].tokens
    engine = Engine(folder, texts=1, speculate=2)
    monkeypatch.setattr("hpckit.serving.engine.guessed", lambda tokens, count: known[len(tokens) - 3 :][:count])
    assert engine.generate([[1, 2, 3]], way)[0].tokens == known
    assert engine.counters.steps <= 15
    it = GuessCost()
    for seconds, guessing in [(2.0, 0)] * 9 + [(3.0, 1), (9.0, 1), (3.0, 1)]:
        it.took(seconds, 1, guessing)
    assert it.tokens == 0.5
    it.took(2.0, 4, 0)
    for _ in range(9):
        it.took(3.0, 4, 2)
    assert it.tokens == 1.0


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
        ({"rope_scaling": {"rope_type": "longrope"}}, "rotary positions of the kind longrope"),
        ({"hidden_act": "gelu"}, "activation gelu"),
        ({"intermediate_size": 40}, "does not fit its config.json"),
        ({"num_hidden_layers": None}, "does not describe a language model"),
        ({"head_dim": 5}, "heads of 5 numbers"),
        ({"num_hidden_layers": 1}, "layers.1.input_layernorm.weight is beyond its 1 layers"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantized"),
    ):
        (folder / "config.json").write_text(json.dumps(config | changed))
        assert main(["generate", str(folder), str(tmp_path / "p.jsonl")]) == 2
        assert said in capsys.readouterr().err
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("rows", "texts", "chunk", "kv-tokens"):
        assert main(["generate", str(folder), str(tmp_path / "p.jsonl"), f"--{name}", "-1"]) == 2
        assert f"{name.replace('-', '_')} = -1" in capsys.readouterr().err
    mixture = write_model(tmp_path / "mixtral", "mixtral", num_experts_per_tok=9)
    assert main(["generate", str(mixture), str(tmp_path / "p.jsonl")]) == 2
    assert "9 of 4 experts" in capsys.readouterr().err
    assert main(["generate", str(tmp_path / "none"), str(tmp_path / "p.jsonl")]) == 2
    assert main(["generate", str(tmp_path), str(tmp_path / "p.jsonl"), "-n", "0"]) == 2


def test_a_warm_engine_has_computed_a_step_and_kept_nothing(tmp_path):
    engine = Engine(write_model(tmp_path / "model", "llama", vocab_size=256), texts=2, rows=16)
    ran = []
    run = engine.model.run
    engine.model.run = lambda step: ran.append(step) or run(step)
    engine.warm()
    assert ran
    assert (engine.blocks.used, engine.blocks.known, engine.counters) == (0, 0, Counters())
