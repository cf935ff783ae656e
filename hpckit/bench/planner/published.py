"""Published training steps, and what the planner says of them.

Megatron-LM: Narayanan et al. 2021 (arXiv:2104.04473), table 1, with the microbatches and the interleaving of the
authors' script (run_table_1.sh); the table has TFLOP/s, from which the time follows by the paper's formula of FLOPs.
Llama 3 405B: Llama team 2024 (arXiv:2407.21783), table 4. Korthikanti et al. 2022 (arXiv:2205.05198): figure 1
(memory), figure 7 (activations), table 5 (times), as the test data of NVIDIA's Calculon have them
(calculon/llm/validation.py); the errors of Calculon itself come from running it on them: mean and worst.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from hpckit.plan.machine.machine import Machine, machine_of
from hpckit.plan.training.cost import StepCost, step_cost
from hpckit.plan.training.memory import block_bytes, in_flight
from hpckit.plan.training.model import LanguageModel, language_model, model_from
from hpckit.plan.training.strategy import Precision, Strategy, require

SEQUENCE, VOCAB = 2048, 51200
CALCULON = {
    "time": (0.0365, 0.089),
    "activations": (0.021, 0.087),
    "ratios": (0.067, 0.30),
    "parameters": (0.085, 0.108),
}


class MegatronRow(NamedTuple):
    """A row of table 1; billions: parameters as printed; rate: TFLOP/s a GPU."""

    billions: float
    width: int
    layers: int
    heads: int
    tp: int
    pp: int
    gpus: int
    batch: int
    microbatch: int
    chunks: int
    rate: float


MEGATRON = tuple(
    MegatronRow(*row)
    for row in (
        (1.7, 2304, 24, 24, 1, 1, 32, 512, 16, 1, 137),
        (3.6, 3072, 30, 32, 2, 1, 64, 512, 16, 1, 138),
        (7.5, 4096, 36, 32, 4, 1, 128, 512, 16, 1, 142),
        (18.4, 6144, 40, 48, 8, 1, 256, 1024, 8, 1, 135),
        (39.1, 8192, 48, 64, 8, 2, 512, 1536, 4, 1, 138),
        (76.1, 10240, 60, 80, 8, 4, 1024, 1792, 2, 3, 140),
        (145.6, 12288, 80, 96, 8, 8, 1536, 2304, 2, 2, 148),
        (310.1, 16384, 96, 128, 8, 16, 1920, 2160, 1, 2, 155),
        (529.6, 20480, 105, 128, 8, 35, 2520, 2520, 1, 3, 163),
        (1008.0, 25600, 128, 160, 8, 64, 3072, 3072, 1, 1, 163),
    )
)


class LlamaRow(NamedTuple):
    """A row of table 4; batch: samples a replica and step; rate: TFLOP/s a GPU."""

    gpus: int
    cp: int
    context: int
    batch: int
    rate: float


LLAMA = (LlamaRow(8192, 1, 8192, 32, 430), LlamaRow(16384, 1, 8192, 16, 400), LlamaRow(16384, 16, 131072, 16, 380))


class KorthikantiRow(NamedTuple):
    """A model on 8 pp GPUs. seconds: with full recomputation; with parallel sequences and selective recomputation.

    state: GiB of parameters and optimizer; activations: GiB without either, and with both; left: % of the activations
    with sequences, selective, both, full.
    """

    name: str
    width: int
    layers: int
    heads: int
    pp: int
    batch: int
    microbatch: int
    chunks: int
    seconds: tuple[float, float]
    state: float
    activations: tuple[float, float]
    left: tuple[float, float, float, float]


KORTHIKANTI = (
    KorthikantiRow(
        *("22B", 6144, 48, 64, 1, 4, 4, 1, (1.42, 1.10), 45.5625, (59.25, 9.5625), (66.84, 49.42, 16.18, 7.64))
    ),
    KorthikantiRow(
        *("175B", 12288, 96, 96, 8, 64, 1, 3, (18.13, 13.75)),
        *(45.5625, (66.84375, 12.3515625), (62.04, 56.53, 18.49, 8.71)),
    ),
    KorthikantiRow(
        *("530B", 20480, 105, 128, 35, 280, 1, 3, (49.05, 37.83)),
        *(31.640625, (114.0234375, 23.076171875), (58.31, 62.04, 20.27, 9.42)),
    ),
    KorthikantiRow(
        *("1T", 25600, 128, 160, 64, 512, 1, 1, (94.42, 71.49)),
        *(32.958984375, (131.25, 26.5625), (58.31, 62.04, 20.27, 9.42)),
    ),
)


@dataclass(frozen=True)
class HeldFigure:
    """A published figure beside the planner's. table, row: where it stands; unit: of both."""

    table: str
    row: str
    published: float
    planned: float
    unit: str

    @property
    def error(self) -> float:
        """Relative."""
        return self.planned / self.published - 1


def gpt(width: int, layers: int, heads: int) -> LanguageModel:
    """A GPT of Megatron-LM."""
    given = {"model_type": "gpt2", "n_layer": layers, "n_embd": width, "n_head": heads}
    return model_from({**given, "vocab_size": VOCAB, "n_positions": SEQUENCE}, f"gpt {width} x {layers}")


def megatron_step(row: MegatronRow, machine: Machine) -> StepCost:
    """The planner's cost of a row: gradients in half precision, no kernel of 2022, nothing hidden."""
    it = Strategy(
        row.batch,
        SEQUENCE,
        dp=row.gpus // (row.tp * row.pp),
        pp=row.pp,
        tp=row.tp,
        microbatch=row.microbatch,
        schedule="interleaved" if row.chunks > 1 else "1f1b",
        chunks=row.chunks,
        recompute="full",
        sequence=False,
        flash=False,
        fused=False,
        overlap=False,
        precision=Precision(gradient=2, sent=2),
    )
    model = gpt(row.width, row.layers, row.heads)
    require(model, it, row.gpus)
    return step_cost(model, it, machine)


def megatron_flops(row: MegatronRow) -> float:
    """FLOPs of a step by the paper's formula, with full recomputation."""
    h, s = row.width, SEQUENCE
    return 96 * row.batch * s * row.layers * h**2 * (1 + s / (6 * h) + VOCAB / (16 * row.layers * h))


def llama_strategy(row: LlamaRow) -> Strategy:
    """TP 8, PP 16 with a layer a stage, the rest dp; optimizer and gradients sharded, sent once a step."""
    dp = row.gpus // (8 * 16 * row.cp)
    return Strategy(
        row.batch * dp,
        row.context,
        dp=dp,
        pp=16,
        cp=row.cp,
        tp=8,
        schedule="interleaved",
        chunks=8,
        sharding=1,
        recompute="selective",
        context_by="gather",
    )


def korthikanti_strategy(row: KorthikantiRow, recompute: str, sequence: bool) -> Strategy:
    """TP 8, no data parallelism."""
    return Strategy(
        row.batch,
        SEQUENCE,
        pp=row.pp,
        tp=8,
        microbatch=row.microbatch,
        schedule="interleaved" if row.chunks > 1 else "1f1b",
        chunks=row.chunks,
        recompute=recompute,
        sequence=sequence,
        flash=False,
    )


def steps(selene: Machine | None = None, llama3: Machine | None = None) -> Iterator[HeldFigure]:
    """The ten rows of Megatron-LM and the three of Llama 3, in TFLOP/s a GPU."""
    machine = selene or machine_of("selene")
    for row in MEGATRON:
        rate = megatron_flops(row) / row.gpus / megatron_step(row, machine).seconds / 1e12
        yield HeldFigure("Megatron-LM 2021", f"{row.billions:g} B, {row.gpus} GPUs", row.rate, rate, "TFLOP/s")
    machine, model = llama3 or machine_of("llama3"), language_model("llama3-405b")
    for llama in LLAMA:
        it = llama_strategy(llama)
        require(model, it, llama.gpus)
        rate = step_cost(model, it, machine).rate / 1e12
        yield HeldFigure("Llama 3 405B", f"{llama.gpus} GPUs, {llama.context} tokens", llama.rate, rate, "TFLOP/s")


def korthikanti_times(machine: Machine | None = None) -> Iterator[HeldFigure]:
    """The eight times of table 5."""
    machine = machine or machine_of("selene")
    for row in KORTHIKANTI:
        model = gpt(row.width, row.layers, row.heads)
        for recompute, sequence, published in (("full", False, row.seconds[0]), ("selective", True, row.seconds[1])):
            it = korthikanti_strategy(row, recompute, sequence)
            require(model, it, 8 * row.pp)
            yield HeldFigure(
                "Korthikanti 2022", f"{row.name} {recompute}", published, step_cost(model, it, machine).seconds, "s"
            )


def korthikanti_memory() -> Iterator[HeldFigure]:
    """The twelve memories of figure 1: matrices of the blocks and their optimizer, activations of the first rank."""
    for row in KORTHIKANTI:
        model = gpt(row.width, row.layers, row.heads)
        it = korthikanti_strategy(row, "none", sequence=False)
        matrices = model.layers * (model.dense - model.vectors) / (it.tp * it.pp)
        state = sum(it.precision[:3]) * matrices / 2**30
        yield HeldFigure("Korthikanti 2022", f"{row.name} state", row.state, state, "GiB")
        for recompute, published in (("none", row.activations[0]), ("selective", row.activations[1])):
            it = korthikanti_strategy(row, recompute, sequence=recompute != "none")
            kept = block_bytes(model, it) * model.layers / it.pp * in_flight(it) / 2**30
            yield HeldFigure("Korthikanti 2022", f"{row.name} activations, {recompute}", published, kept, "GiB")


def korthikanti_left() -> Iterator[HeldFigure]:
    """The sixteen shares of figure 7, in %."""
    for row in KORTHIKANTI:
        model = gpt(row.width, row.layers, row.heads)
        whole = block_bytes(model, korthikanti_strategy(row, "none", sequence=False))
        forms = (("none", True), ("selective", False), ("selective", True), ("full", False))
        for (recompute, sequence), published in zip(forms, row.left, strict=True):
            part = block_bytes(model, korthikanti_strategy(row, recompute, sequence))
            name = f"{row.name} {'parallel sequences, ' if sequence else ''}{recompute}"
            yield HeldFigure("Korthikanti 2022", name, published, 100 * part / whole, "%")
