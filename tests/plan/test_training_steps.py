"""The planner of training: sizes, memory and times against published tables; the search against all that is legal."""

from __future__ import annotations

import json
from dataclasses import replace
from statistics import mean, median

import pytest

from hpckit.bench.planner import published
from hpckit.errors import InputError
from hpckit.plan.collective.algorithms import collective_plan
from hpckit.plan.machine.machine import machine_of, toml_of
from hpckit.plan.pipeline.price import price_schedule
from hpckit.plan.pipeline.schedules import pipeline_schedule
from hpckit.plan.pipeline.times import StageTimes
from hpckit.plan.pricing import price
from hpckit.plan.training.cost import share, step_cost
from hpckit.plan.training.links import line
from hpckit.plan.training.memory import block_bytes, memory
from hpckit.plan.training.model import language_model, model_from
from hpckit.plan.training.reasons import other_conditions, reasons
from hpckit.plan.training.search import HEADROOM, _microbatches, _orders, _ways, meshes, search
from hpckit.plan.training.strategy import MIXED, RECOMPUTE, Strategy, faults, require
from hpckit.plan.training.traffic import traffic


@pytest.mark.parametrize(
    ("name", "billions", "digits"),
    [
        ("llama3-8b", 8.0, 1),
        ("llama3-70b", 70.6, 1),
        ("llama3-405b", 405.9, 1),
        ("mixtral-8x7b", 46.7, 1),
        ("deepseek-v3", 671, 0),
        ("gpt2-1.5b", 1.6, 1),
        ("gpt3-175b", 175, 0),
    ],
)
def test_models_have_as_many_parameters_as_their_papers_say(name, billions, digits):
    assert round(language_model(name).parameters / 1e9, digits or None) == pytest.approx(billions)


def test_parameters_and_flops_are_those_of_the_formulas_of_megatron():
    for row in published.MEGATRON:
        model = published.gpt(row.width, row.layers, row.heads)
        h, layers, s, v = row.width, row.layers, published.SEQUENCE, published.VOCAB
        assert model.parameters == pytest.approx(12 * layers * h**2 * (1 + 13 / (12 * h) + (v + s) / (12 * layers * h)))
        assert round(model.parameters / 1e9, 1) == row.billions
        flops = 72 * row.batch * s * layers * h**2 * (1 + s / (6 * h) + v / (12 * layers * h))
        assert row.batch * s * model.flops(s, causal=False) == pytest.approx(flops)


def test_activations_are_those_of_the_closed_formulas():
    a, h, s, b, t = 64, 6144, 2048, 4, 8
    model = published.gpt(h, 48, a)
    plain = Strategy(b, s, tp=t, microbatch=b, sequence=False, flash=False)
    assert block_bytes(model, plain) == pytest.approx(s * b * h * (10 + 24 / t + 5 * a * s / (h * t)))
    assert block_bytes(model, replace(plain, tp=1)) == pytest.approx(s * b * h * (34 + 5 * a * s / h))
    assert block_bytes(model, replace(plain, sequence=True)) == pytest.approx(s * b * h / t * (34 + 5 * a * s / h))
    assert block_bytes(model, replace(plain, recompute="selective")) == pytest.approx(s * b * h * (10 + 24 / t))
    assert block_bytes(model, replace(plain, sequence=True, recompute="selective")) == pytest.approx(34 * s * b * h / t)
    assert block_bytes(model, replace(plain, recompute="full")) == 2 * s * b * h


def test_published_steps_are_met_with_one_efficiency_a_machine():
    errors = [abs(each.error) for each in published.steps()]
    assert median(errors) < 0.05
    assert max(errors) < 0.10
    times = [abs(each.error) for each in published.korthikanti_times()]
    assert mean(times) < published.CALCULON["time"][0]
    assert max(times) < published.CALCULON["time"][1]


def test_the_efficiencies_are_those_of_the_least_worst_error_over_all_rows():
    def worst(change):
        machines = [
            replace(it, compute=replace(it.compute, efficiency=it.compute.efficiency + change))
            for it in (machine_of("selene"), machine_of("llama3"))
        ]
        rows = list(published.steps(*machines))
        ours = [*rows[: len(published.MEGATRON)], *published.korthikanti_times(machines[0])]
        return [max(abs(1 / (1 + it.error) - 1) if it.unit != "s" else abs(it.error) for it in ours),
                max(abs(it.error) for it in rows[len(published.MEGATRON) :])]  # fmt: skip

    here = worst(0.0)
    for change in (-0.01, 0.01):
        assert all(a > b for a, b in zip(worst(change), here, strict=True))


def test_published_memory_is_met_to_the_last_digit():
    assert [each.planned for each in published.korthikanti_memory()] == [
        each.published for each in published.korthikanti_memory()
    ]
    assert all(abs(each.planned - each.published) < 0.16 for each in published.korthikanti_left())  # points, as printed


@pytest.mark.parametrize("size", [2, 8, 16, 64])
@pytest.mark.parametrize("stride", [1, 4, 8])
def test_a_gather_takes_what_the_plan_of_a_ring_is_priced_at(size, stride):
    machine = machine_of("selene")
    whole = replace(machine, compute=replace(machine.compute, efficiency=1.0))
    one = line(whole, size, stride)
    nbytes = 1e9
    ranks = size * stride
    plan = collective_plan("all_gather", "ring", size)
    levels = tuple(
        replace(level, ranks=max(level.ranks // stride, 1) if level.ranks else 0) for level in machine.levels
    )
    if levels[0].ranks <= 1:
        levels = levels[1:]
    elif ranks > machine.levels[0].ranks:  # all rings of a node at once lend each other their links
        levels = (levels[0], replace(levels[1], bandwidth=levels[1].bandwidth * levels[0].ranks))
        levels = (replace(levels[0], uplink=0.0), levels[1])
    ring = price(plan, replace(machine, levels=levels), nbytes=nbytes).seconds
    assert one.gather(nbytes) == pytest.approx(ring, rel=0.04)  # the hops of a ring over nodes overlap a little


@pytest.mark.parametrize(
    ("schedule", "chunks"), [("1f1b", 1), ("gpipe", 1), ("interleaved", 2), ("zb_h1", 1), ("zb_v", 2)]
)
def test_a_bubble_is_that_of_the_schedule(schedule, chunks):
    model = language_model("llama3-8b")
    it = Strategy(32, 4096, pp=4, tp=2, schedule=schedule, chunks=chunks, recompute="none")
    machine = machine_of("selene")
    require(model, it, 8)
    block, cost = share(model, it, machine), step_cost(model, it, machine)
    # As the closed forms have it: F, I and W of equal lengths, no messages.
    unit = block.seconds / 3
    even = replace(block, forward=unit, inputs=unit, weights=unit, again=0.0)
    even = replace(even, messages=dict.fromkeys(block.messages, 0.0), forwards=dict.fromkeys(block.messages, 0.0))
    bubble = step_cost(model, it, machine, even).parts["bubble"] - _sends(cost, it)
    made = pipeline_schedule(schedule, 4, 32, **({"chunks": 2} if schedule == "interleaved" else {}))
    simulated = price_schedule(made, times=StageTimes(*[unit / chunks] * 3))
    assert bubble == pytest.approx(simulated.seconds - 32 * 3 * unit, rel=1e-9)


def _sends(cost, it):
    """What `step_cost` counts for messages within its bubble."""
    return (it.pp - 1) * cost.parts["pp"] / it.microbatches / (1 if it.chunks == 1 else it.chunks)


def test_a_search_finds_the_quickest_of_all_that_is_legal():
    model, machine, batch, context = language_model("llama3-8b"), machine_of("selene"), 8, 8192
    found = search(model, 16, machine, batch, context)
    quickest = float("inf")
    for mesh in meshes(model, 16, batch, context, {}):
        for size in _microbatches(mesh, {}):
            for recompute in RECOMPUTE:
                for way in _ways(model, mesh, {}):
                    it = replace(mesh, microbatch=size, recompute=recompute, context_by=way)
                    block = share(model, it, machine)
                    for schedule, chunks, stage in _orders(model, it, {}):
                        one = replace(it, schedule=schedule, chunks=chunks, sharding=stage)
                        if sum(memory(model, one).values()) <= HEADROOM * machine.compute.memory:
                            quickest = min(quickest, step_cost(model, one, machine, block).seconds)
    assert found.best.cost.seconds == pytest.approx(quickest, rel=2e-3)
    for each in [found.best, *found.others]:
        assert list(faults(model, each.strategy, 16)) == []
        assert each.bytes <= HEADROOM * machine.compute.memory
    assert list(reasons(found))
    names = [name for name, _ in other_conditions(model, 16, machine, batch, context, found)]
    assert "half the network" in names


def test_gradients_in_16_bits_halve_what_replicas_send_and_keep_the_memory():
    model, machine = language_model("llama3-8b"), machine_of("nvlink")
    short = MIXED._replace(sent=2)
    for stage, whole, half in ((0, 8, 4), (1, 6, 4), (2, 4 * 2 + 2, 2 * 2 + 2), (3, 2 * (4 + 4), 2 * (2 + 4))):
        it = Strategy(256, 8192, dp=32, tp=4, microbatch=4, sharding=stage, overlap=False)
        other = replace(it, precision=short)
        sent, less = (traffic(model, each, machine)["dp"].nbytes for each in (it, other))
        assert less / sent == pytest.approx(half / whole)
        assert step_cost(model, other, machine).seconds < step_cost(model, it, machine).seconds
        assert memory(model, other) == memory(model, it)
    found = search(model, 8, machine, 64, 8192, {"precision": short, "pp": 2, "tp": 2})
    assert found.best is not None
    assert found.best.strategy.precision == short


@pytest.mark.nightly
def test_experts_are_dealt_over_all_axes_but_the_pipeline():
    model, machine = language_model("deepseek-v3"), machine_of("llama3")
    fixed = {"pp": 8, "schedule": "zb_v", "sharding": 1, "recompute": "none"}  # as a search of all finds them
    found = search(model, 256, machine, 1024, 4096, fixed)
    assert found.best.strategy.ep == 256 // 8
    assert list(faults(model, found.best.strategy, 256)) == []
    less = memory(model, found.best.strategy)["parameters"]
    assert less < memory(model, replace(found.best.strategy, ep=found.best.strategy.ep // 2))["parameters"]


def test_all_that_does_not_fit_is_said_at_once():
    model = language_model("llama3-8b")
    wrong = Strategy(10, 8192, dp=3, pp=40, cp=3, tp=5, ep=2, schedule="1f1b")
    with pytest.raises(InputError) as error:
        require(model, wrong, 64)
    for said in ("1800, and there are 64", "tp=5 does not divide 32 heads", "32 layers", "cp=6", "a batch of 10"):
        assert said in str(error.value)


def test_a_config_of_transformers_describes_a_model(tmp_path):
    given = {"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336}
    given |= {"num_hidden_layers": 32, "vocab_size": 128256, "max_position_embeddings": 8192, "model_type": "llama"}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(given))
    assert language_model(tmp_path).parameters == language_model("llama3-8b").parameters
    with pytest.raises(InputError, match="do not divide 32 heads; vocab_size is missing"):
        model_from({**given, "vocab_size": None, "num_key_value_heads": 5}, "x")
    with pytest.raises(InputError, match="there is no model") as error:
        language_model("llama3-405")
    assert "did you mean llama3-405b" in error.value.do


def test_a_machine_file_keeps_what_its_ranks_compute_with(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(toml_of(machine_of("selene")))
    assert machine_of(path).compute == machine_of("selene").compute
    path.write_text(toml_of(machine_of("selene")).replace("efficiency = 0.756", "efficiency = 2\nspeed = 1"))
    with pytest.raises(InputError, match="machine file is wrong") as error:
        machine_of(path)
    assert "unknown speed" in error.value.do
    assert "a share of the peak" in error.value.do


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "ranks", "batch", "fixed"),
    [("gpt3-175b", 256, 512, {"pp": 16, "tp": 4}), ("mixtral-8x7b", 32, 64, {"etp": 2, "pp": 2})],
)
def test_what_the_search_compares_is_what_its_splits_cost(name, ranks, batch, fixed):
    model, machine = language_model(name), machine_of("selene")  # 96 layers do not divide into 16 x 4 stages
    found = search(model, ranks, machine, batch, 2048, fixed)
    assert found.best is not None
    for each in (found.best, *found.others):
        require(model, each.strategy, ranks)
        assert fixed.items() <= vars(each.strategy).items()
        assert each.cost.seconds == step_cost(model, each.strategy, machine).seconds
        assert each.memory == memory(model, each.strategy)


def test_cutting_experts_saves_memory_and_sends_more():
    model, machine = language_model("mixtral-8x7b"), machine_of("llama3")
    whole, cut = Strategy(64, 4096, dp=16, ep=8), Strategy(64, 4096, dp=16, ep=8, etp=2)
    held, less = (memory(model, it) for it in (whole, cut))
    own = held["parameters"] - less["parameters"]  # half of the experts of a rank
    assert own == pytest.approx(2 * model.layers * 3 * model.width * 14336 * model.experts.count / 8 / 2)
    costs = [step_cost(model, it, machine).parts for it in (whole, cut)]
    assert costs[0]["etp"] == 0 < costs[1]["etp"]
    assert costs[1]["ep"] > costs[0]["ep"]  # more of the line stands in other nodes
    said = [what for what, _ in faults(model, replace(cut, etp=3))]
    assert any("ep=8 x etp=3" in what for what in said)
    assert any("14336" in what for what in said)
    assert any("no experts" in what for what, _ in faults(language_model("llama3-8b"), Strategy(8, 512, dp=8, etp=2)))


QWEN2 = {
    "architectures": ["Qwen2MoeForCausalLM"], "hidden_size": 2048, "intermediate_size": 5632, "num_attention_heads": 16,
    "num_hidden_layers": 24, "num_key_value_heads": 16, "vocab_size": 151936, "max_position_embeddings": 8192,
    "num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408, "decoder_sparse_step": 1,
    "shared_expert_intermediate_size": 5632,
}  # fmt: skip
QWEN3 = {
    "hidden_size": 2048, "intermediate_size": 6144, "num_attention_heads": 32, "num_hidden_layers": 48, "head_dim": 128,
    "num_key_value_heads": 4, "vocab_size": 151936, "max_position_embeddings": 40960, "num_experts": 128,
    "num_experts_per_tok": 8, "moe_intermediate_size": 768,
}  # fmt: skip


def test_configs_of_other_families_have_the_sizes_of_their_cards(tmp_path):
    for given, billions in ((QWEN2, 14.3), (QWEN3, 30.5), ({"text_config": QWEN3}, 30.5)):
        assert round(model_from(given, "").parameters / 1e9, 1) == billions
    assert model_from(QWEN2, "").experts.shared == 4
    for spoiled in ({"decoder_sparse_step": 2}, {"shared_expert_intermediate_size": 100}, {"architectures": ["Bert"]}):
        with pytest.raises(InputError) as caught:
            model_from(QWEN2 | spoiled, "")
        assert (
            str(next(iter(spoiled.values()))).strip("[]'") in caught.value.message or "sparse" in caught.value.message
        )
    (tmp_path / "config.json").write_text("[1, 2]")
    with pytest.raises(InputError):
        language_model(tmp_path)
