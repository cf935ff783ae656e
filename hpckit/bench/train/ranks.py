"""What each rank of `hpckit bench train` runs: data-parallel and pipelined GPT steps, ours and PyTorch's in turn."""

from __future__ import annotations

import functools
import gc
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.bench.measure import SELDOM, Times, in_turn, seconds_of, uncollected
from hpckit.bench.ranks import answer, slowest, wait_asleep
from hpckit.comm.mesh import Mesh
from hpckit.nn.gpt import gpt2
from hpckit.nn.linear import rows
from hpckit.nn.loss import CrossEntropy
from hpckit.nn.optimizers import AdamW
from hpckit.nn.parameters import Parameters
from hpckit.plan.pipeline.price import price_schedule
from hpckit.plan.pipeline.times import StageTimes
from hpckit.plan.pipeline.training import TrainingPlan, training_plan
from hpckit.plan.training.context import CORES, KINDS, PLAIN, context_seconds
from hpckit.plan.training.links import line
from hpckit.training.context import ring
from hpckit.training.data import DataParallel
from hpckit.training.pipeline.pipeline import Pipeline
from hpckit.training.tensor.model import tensor_parallel
from hpckit.training.tensor.ranks import WHOLE, Chunk, Ranks

VOCAB, LENGTH, LAYERS, WIDTH, HEADS = 256, 128, 4, 256, 8
DATA_BATCH, PIPE_BATCH, MICROBATCHES = 8, 16, 8  # samples a rank; samples of a pipeline's step
RATE = 1e-3
WIDE, WIDE_LAYERS, WIDE_HEADS, WIDE_BATCH = 1024, 2, 16, 4  # of the GPT whose layers ranks share
LONG, LONG_LAYERS = 8192, 2  # tokens of a sample that ranks share, and blocks
FIXED = 8  # parts of a batch
ZERO = {"whole": 0, "zero1": 1, "zero2": 2, "zero3": 3}
SCHEDULES = ("gpipe", "1f1b", "zb_h1")
NAP = 0.001  # s that ranks sleep at a time while one works alone

Step = Callable[[], float]  # a step; the mean loss before it


def time_in_turn(
    steps: Mapping[str, Step], alone: tuple[str, ...], rounds: int, seldom: Mapping[str, Step] | None = None
) -> Times:
    """Seconds a step of each candidate, in turn, the slowest rank's; those named in `alone` run on rank 0 only.

    seldom: candidates that are there in the first of every `SELDOM` rounds only, as their differences are large.

    The order changes from round to round (`in_turn`): how rested the cores are behind one that ran alone meets all.
    """
    comm = MPI.COMM_WORLD
    every = {**steps, **(seldom or {})}
    times: Times = {name: [] for name in every}
    with uncollected():
        for turn in range(-2, rounds):  # the first two compile and touch the memory
            for name in in_turn(list(every if turn < 0 or turn % SELDOM == 0 else steps), turn):
                comm.Barrier()
                seconds = seconds_of(every[name]) if name not in alone or comm.rank == 0 else 0.0
                wait_asleep(comm, NAP)
                seconds = slowest(comm, seconds)
                if turn >= 0:
                    times[name].append(seconds)
            gc.collect()
    return times


def text(batch: int, number: int, length: int = LENGTH) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and the ones that follow: int64[batch, length] each."""
    tokens = np.random.default_rng(number).integers(0, VOCAB, (batch, length + 1))
    return tokens[:, :-1].copy(), tokens[:, 1:].copy()


def model() -> Any:
    """The GPT of the benchmark."""
    return gpt2(VOCAB, LAYERS, WIDTH, HEADS, LENGTH, tied=False)


def data_step(comm: MPI.Intracomm, x: np.ndarray, targets: np.ndarray) -> tuple[DataParallel, Step]:
    """A data-parallel step of ours."""
    data, loss = DataParallel(comm, model()), CrossEntropy(VOCAB)
    data.initialize(0)
    optimizer = AdamW(data.parameters)
    scale = 1 / (targets.size * comm.size)

    def step() -> float:
        data.parameters.zero_grads()
        logits, saved = data.forward(x)
        total, kept = loss.forward(logits, targets)
        data.backward(saved, loss.backward(kept, scale))
        optimizer.step(RATE)
        return total / targets.size

    return data, step


def initial(parameters: Parameters, ours: Any = None) -> Any:
    """A model of ours that holds copies of the values, for PyTorch to start from."""
    ours, values = ours or model(), parameters.named()
    for parameter in ours.parameters():
        parameter.value = values[parameter.name].value.copy()
    return ours


def same_losses(ours: Step, theirs: Mapping[str, Step]) -> None:
    """Both train alike: the losses of the first steps agree."""
    for name, step in theirs.items():
        np.testing.assert_allclose(step(), ours(), rtol=2e-4, err_msg=name)


def data(rounds: int, with_torch: bool) -> dict[str, Any]:
    """A step of a batch on each rank; of one rank alone; of both at once without communication ("apart")."""
    comm = MPI.COMM_WORLD
    x, targets = text(DATA_BATCH, comm.rank)
    _, one = data_step(MPI.COMM_SELF, x, targets)
    together, step = data_step(comm, x, targets)
    steps = {"one": one, "apart": one, "data_parallel": step}
    if with_torch:
        from hpckit.bench.rivals.torch_ranks import data_steps

        theirs = data_steps(initial(together.parameters), HEADS, x, targets, RATE)
        for _ in range(3):
            same_losses(step, {"torch_ddp": theirs["torch_ddp"]})
        steps |= theirs
    times = time_in_turn(steps, ("one", "torch_one"), rounds)
    together.check()
    return {"times": times}


def pipe_step(pipeline: Pipeline, x: np.ndarray, targets: np.ndarray) -> Step:
    """A step of a pipeline of ours, with its own optimizer."""
    pipeline.initialize(0)
    return optimized(pipeline, AdamW(pipeline.parameters), x, targets, targets.size)


def optimized(pipeline: Pipeline, optimizer: AdamW, x: np.ndarray, targets: np.ndarray, total: float) -> Step:
    """A step of a pipeline and its optimizer; total: targets of all replicas."""

    def step() -> float:
        pipeline.zero_grads()
        result = pipeline.run(x, targets, total=total)
        optimizer.step(RATE)
        return result.loss

    return step


def pipe(rounds: int, with_torch: bool) -> dict[str, Any]:
    """A step of a pipeline of all ranks under each schedule, of one rank alone, and of both ("apart")."""
    comm = MPI.COMM_WORLD
    x, targets = text(PIPE_BATCH, 0)
    loss = CrossEntropy(VOCAB)
    options: dict[str, Any] = {"batch": PIPE_BATCH, "microbatches": MICROBATCHES}
    layers = LAYERS + 2  # with embedding and head
    single = Pipeline(Mesh(MPI.COMM_SELF, pp=1), model(), loss, training_plan(1, layers, **options))
    one = pipe_step(single, x, targets)
    steps = {"one": one, "apart": one}
    theirs: dict[str, Step] = {}
    if with_torch:
        from hpckit.bench.rivals.torch_ranks import pipe_steps

        theirs = pipe_steps(initial(single.parameters), HEADS, x, targets, MICROBATCHES, RATE)
        first = steps["one"]()
        same_losses(lambda: first, theirs)
    for _ in range(2):
        steps["one"]()
    single.reset_times()
    for _ in range(3):
        steps["one"]()
    rows = np.array([layer[1:] for layer in single.layer_times()])  # F, I, W
    comm.Bcast(rows, 0)
    for name in SCHEDULES:
        costs = rows.sum(axis=1).tolist()
        plan = training_plan(comm.size, layers, pp=comm.size, schedule=name, costs=costs, **options)
        steps[name] = pipe_step(Pipeline(Mesh(comm, pp=comm.size), model(), loss, plan), x, targets)
    times = time_in_turn(steps, ("one",), rounds, theirs)
    return {"times": times, "simulated": speed_up(plan, rows)}


def sharding(rounds: int, with_torch: bool) -> dict[str, Any]:
    """A data-parallel step of a batch on each rank, whole and with what ZeRO shards; and the bytes that a rank holds.

    From stage 2 on each layer is a stage of the plan, whose gradients come and go.
    """
    comm, loss, layers = MPI.COMM_WORLD, CrossEntropy(VOCAB), LAYERS + 2
    x, targets = text(DATA_BATCH, comm.rank)
    steps: dict[str, Step] = {}
    memory: dict[str, dict[str, float]] = {}
    for name, stage in ZERO.items():
        how: dict[str, Any] = {"schedule": "looped_bfs", "chunks": layers} if stage > 1 else {}
        plan = training_plan(comm.size, layers, batch=DATA_BATCH * comm.size, **how)
        it = Pipeline(Mesh(comm, dp=comm.size), model(), loss, plan, sharding=stage)
        it.initialize(0)
        steps[name] = optimized(it, AdamW(it.parameters), x, targets, targets.size * comm.size)
        whole, largest = it.parameters.values.nbytes, max(unit.end - unit.start for unit in it.shards.units) * 4
        held = sum(it.shards.memory().values()) + 2 * sum(owned.grads.nbytes for owned in it.parameters.owned)
        parts = [whole / (comm.size if stage else 1), whole / (comm.size if stage > 1 else 1) + largest * (stage > 1)]
        memory[name] = {"held": held, "formula": sum(parts) + 2 * whole / (comm.size if stage else 1)}
    first = {name: [step() for _ in range(3)] for name, step in steps.items()}
    for name, losses in first.items():
        if losses != first["whole"]:
            raise AssertionError(f"{name} has other losses: {losses}, not {first['whole']}")
    return {"times": time_in_turn(steps, (), rounds), "memory": memory}


class Apart(Ranks):
    """A group of ranks that exchange nothing: the work of a tensor-parallel rank without its messages."""

    def start_gather(self, own: Any, tokens: tuple[int, int], chunk: Chunk = WHOLE) -> Callable[[], Any]:
        """As many numbers, of about the size of what is gathered."""
        return lambda: _noise((*tokens, own.shape[-1]))

    def start_scatter(self, summands: list[Any], tokens: tuple[int, int], chunk: Chunk = WHOLE) -> Callable[[], Any]:
        """The summand of this rank."""
        return lambda: rows(summands[0])[self.own(tokens)]

    def of_parts(self, own: np.ndarray) -> np.ndarray:
        """The numbers of this rank."""
        return own

    def sum(self, values: Any) -> Any:
        """The summand of this rank."""
        return values

    def largest(self, values: Any) -> Any:
        """The numbers of this rank."""
        return values


@functools.cache
def _noise(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def wide() -> Any:
    """The GPT whose layers the ranks share."""
    return gpt2(VOCAB, WIDE_LAYERS, WIDE, WIDE_HEADS, LENGTH, tied=False)


def tensor(rounds: int, with_torch: bool) -> dict[str, Any]:
    """A step of one rank alone, of ranks that share each layer, and of their halves without messages ("apart")."""
    comm, layers = MPI.COMM_WORLD, WIDE_LAYERS + 2
    x, targets = text(WIDE_BATCH, 0)
    single = Pipeline(
        Mesh(MPI.COMM_SELF, pp=1), wide(), CrossEntropy(VOCAB), training_plan(1, layers, batch=WIDE_BATCH)
    )
    one = pipe_step(single, x, targets)
    shared_plan = training_plan(comm.size, layers, tp=comm.size, batch=WIDE_BATCH)
    shared = Pipeline(Mesh(comm, dp=1, pp=1, tp=comm.size), wide(), CrossEntropy(VOCAB), shared_plan)
    half = tensor_parallel(wide(), CrossEntropy(VOCAB), Apart(comm))
    alone = Pipeline(Mesh(MPI.COMM_SELF, pp=1), *half, training_plan(1, layers, batch=WIDE_BATCH))
    steps = {"one": one, "tensor": pipe_step(shared, x, targets), "apart": pipe_step(alone, x, targets)}
    if with_torch:
        from hpckit.bench.rivals.torch_tensor import tensor_step

        theirs = {"torch_dtensor": tensor_step(initial(single.parameters, wide()), WIDE_HEADS, x, targets, RATE)}
        first = [steps["one"]() for _ in range(3)]
        np.testing.assert_allclose([steps["tensor"]() for _ in range(3)], first, rtol=2e-4)
        np.testing.assert_allclose([theirs["torch_dtensor"]() for _ in range(3)], first, rtol=2e-4)
        steps |= theirs
    return {"times": time_in_turn(steps, ("one",), rounds)}


def context(rounds: int, with_torch: bool) -> dict[str, Any]:
    """A step of one rank alone on a long sample, and of ranks that share its tokens, in each way and as is priced."""
    comm = MPI.COMM_WORLD

    def step(comm: MPI.Intracomm, kind: str) -> Step:
        net = gpt2(VOCAB, LONG_LAYERS, WIDTH, HEADS, LONG, tied=False)
        plan = training_plan(comm.size, len(net.layers), cp=comm.size, batch=1)
        mesh = Mesh(comm, dp=1, pp=1, cp=comm.size)
        return pipe_step(Pipeline(mesh, net, CrossEntropy(VOCAB), plan, context=kind), *text(1, 0, LONG))

    steps = {"one": step(MPI.COMM_SELF, "auto")}
    steps |= {kind: step(comm, kind) for kind in ("auto", *KINDS)}
    first = [steps["one"]() for _ in range(2)]
    for kind in KINDS:
        np.testing.assert_allclose([steps[kind]() for _ in range(2)], first, rtol=2e-4)
    return {"times": time_in_turn(steps, ("one",), rounds)}


class Clocked:
    """The kernels of a module; `spent`: processor time in them, s, in which neither waits nor other ranks count."""

    def __init__(self, kernels: Any) -> None:
        self._kernels, self.spent = kernels, 0.0

    def __getattr__(self, name: str) -> Any:
        kernel = getattr(self._kernels, name)

        def clocked(*given: Any) -> Any:
            begin = time.thread_time()
            found = kernel(*given)
            self.spent += time.thread_time() - begin
            return found

        return clocked


def zigzag(rounds: int, with_torch: bool) -> dict[str, Any]:
    """The attention of a step in a ring: of the slowest rank, with zigzag chunks and with a stretch of tokens a rank.

    Processor time: there may be fewer cores than ranks. priced: the ratio that `context_seconds` says, and the losses
    of both are compared.
    """
    comm, times, losses = MPI.COMM_WORLD, dict[str, list[float]](), {}
    ring.dispatch = clock = Clocked(ring.dispatch)
    steps = {}
    for kind in ("ring", PLAIN):
        net = gpt2(VOCAB, 1, WIDTH, HEADS, LONG // 2, tied=False)
        plan = training_plan(comm.size, len(net.layers), cp=comm.size, batch=1)
        pipeline = Pipeline(Mesh(comm, dp=1, pp=1, cp=comm.size), net, CrossEntropy(VOCAB), plan, context=kind)
        steps[kind] = pipe_step(pipeline, *text(1, 0, LONG // 2))
        losses[kind], times[kind] = [steps[kind]() for _ in range(2)], []
    np.testing.assert_allclose(losses[PLAIN], losses["ring"], rtol=2e-4)
    for _ in range(rounds):
        for kind, step in steps.items():
            clock.spent = 0.0
            step()
            times[kind].append(slowest(comm, clock.spent))
    along, none = line(CORES, comm.size, 1), 0.0
    exposed = {kind: sum(context_seconds(kind, along, none, none, 1.0)[0]) for kind in steps}
    return {"times": times, "priced": (3.5 + exposed[PLAIN]) / (3.5 + exposed["ring"])}


def parts(rounds: int, with_torch: bool) -> dict[str, Any]:
    """A step of one rank on a batch as a whole, in microbatches, with fixed parts of it, and of the layers, too."""
    x, targets = text(DATA_BATCH, 0)
    ways: dict[str, dict[str, Any]] = {"whole": {}, "microbatches": {"microbatches": FIXED}, "parts": {"parts": FIXED}}
    ways["layer_parts"] = {"parts": FIXED, "layer_parts": FIXED}
    steps = {}
    for name, how in ways.items():
        plan = training_plan(1, LAYERS + 2, batch=DATA_BATCH, **how)
        steps[name] = pipe_step(Pipeline(Mesh(MPI.COMM_SELF, pp=1), model(), CrossEntropy(VOCAB), plan), x, targets)
    first = {name: [step() for _ in range(3)] for name, step in steps.items()}
    for losses in first.values():
        np.testing.assert_allclose(losses, first["whole"], rtol=2e-4)
    return {"times": time_in_turn(steps, (), rounds)}


def speed_up(plan: TrainingPlan, rows: np.ndarray) -> float:
    """How much quicker a plan is than one rank, if ranks compute as one alone does and messages take no time."""
    stages = StageTimes(*(plan.partition.sums(column) for column in rows.T.tolist()))
    return plan.microbatches * float(rows.sum()) / price_schedule(plan.schedule, times=stages).seconds


def case(part: str, rounds: int, with_torch: bool) -> dict[str, Any]:
    """One part of the benchmark on every rank."""
    every = {"data": data, "pipeline": pipe, "sharding": sharding, "tensor": tensor}
    every |= {"context": context, "parts": parts, "zigzag": zigzag}
    return every[part](rounds, with_torch)


if __name__ == "__main__":
    answer(sys.argv[1:], case)
