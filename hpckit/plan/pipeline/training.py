"""How a training step is laid out on the ranks: replicas, stages, microbatches, schedule; checked without MPI."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from hpckit.errors import InputError
from hpckit.plan.blocks import block_starts
from hpckit.plan.inputs.numbers import count as whole
from hpckit.plan.pipeline.partition import Partition, partition_layers
from hpckit.plan.pipeline.parts import fault, root, subtrees
from hpckit.plan.pipeline.program import Program, Together, overlaps, pipeline_program, rounds_together, together
from hpckit.plan.pipeline.schedule import Schedule
from hpckit.plan.pipeline.schedules import pipeline_schedule
from hpckit.plan.pipeline.table import read_schedule
from hpckit.plan.proving import prove

MOST_NAMED = 6  # meshes that a message offers


@dataclass(frozen=True)
class TrainingPlan:
    """A training step on `dp` replicas of a pipeline of `pp` groups of `cp * tp` ranks; made and proved by
    `training_plan`.

    batch: samples of a step, over all replicas. parts: the batch's fixed parts, whose sums are added as a tree
    (`hpckit.plan.pipeline.parts`); 0: none. grouped: how many of them a microbatch has. layer_parts: into which each
    layer is cut, on however many ranks; 0: one for each of tp. ep: ranks that share the experts, taken from
    dp x cp x tp; etp: neighbors that share the hidden numbers of each expert besides. cp: ranks that share the tokens
    of each sample (`hpckit.plan.training.context`). program: what each rank of a pipeline does. partition: the layers
    of each stage. tied: the first and the last layer share a weight. paired: passes of two microbatches are taken
    together, where that hides messages to experts.
    """

    dp: int
    pp: int
    batch: int
    program: Program
    partition: Partition
    tied: bool
    tp: int = 1
    parts: int = 0
    layer_parts: int = 0
    ep: int = 1
    cp: int = 1
    etp: int = 1
    paired: bool = True
    grouped: int = 1

    @property
    def replicas(self) -> int:
        """Ranks that have the same parameters, experts apart, and add their gradients: dp x cp."""
        return self.dp * self.cp

    @property
    def schedule(self) -> Schedule:
        """The order of the compute actions."""
        return self.program.schedule

    @property
    def microbatches(self) -> int:
        """Microbatches of a replica in a step."""
        return self.schedule.microbatches

    @property
    def mesh(self) -> dict[str, int]:
        """The axes of its mesh, the last one innermost; cp and tp where they have several ranks."""
        shared = {name: size for name, size in (("cp", self.cp), ("tp", self.tp)) if size > 1}
        return {"dp": self.dp, "pp": self.pp, **shared}

    def __str__(self) -> str:
        layers = ", ".join(f"{first}-{end - 1}" for first, end in pairwise(self.partition.starts))
        mesh = self.mesh
        experts = f", experts on {self.ep} of them" if self.ep > 1 else ""
        experts += f", each cut for {self.etp}" if self.etp > 1 else ""
        return (
            f"{' x '.join(map(str, mesh.values()))} ranks ({' x '.join(mesh)}){experts}, {self.batch} samples a step; "
            f"{self.schedule.title()}; layers of the stages: {layers}"
        )

    def samples(self, replica: int) -> int:
        """The most samples of a replica in a step."""
        if not self.parts:
            return self.batch // self.dp
        node = subtrees(self.parts, self.dp)[replica]
        starts = block_starts(self.batch, self.parts)
        return int(starts[node.first + node.parts] - starts[node.first])

    def cuts(self, samples: int, replica: int = 0) -> list[slice]:
        """The microbatches of a replica that has so many samples: of equal sizes in a full batch.

        At the end of the data there may be fewer: sizes differ by at most 1 then, and some may be empty. With fixed
        parts a replica that has fewer than others gets empty microbatches at the end.
        """
        own = subtrees(self.parts, self.dp)[replica].parts if self.parts else self.microbatches
        grouped = min(self.grouped, own)
        starts = block_starts(samples, own).tolist()[::grouped]
        missing = self.microbatches + 1 - len(starts)
        return [slice(first, end) for first, end in pairwise([*starts, *[samples] * missing])]

    def part_starts(self, samples: int, replica: int = 0) -> list[tuple[int, ...]]:
        """Of each of these microbatches the samples where its fixed parts begin, and its end; () where it has one."""
        cuts = self.cuts(samples, replica)
        if self.grouped == 1:
            return [()] * len(cuts)
        own = subtrees(self.parts, self.dp)[replica].parts
        grouped, starts = min(self.grouped, own), block_starts(samples, own)
        found = [tuple((starts[at : at + grouped + 1] - starts[at]).tolist()) for at in range(0, own, grouped)]
        return [each if grouped > 1 else () for each in found] + [()] * (len(cuts) - len(found))

    @property
    def overlaps(self) -> bool:
        """Whether messages to experts fly behind the other one of two microbatches."""
        return self.paired and self.ep * self.etp > 1 and overlaps(self.schedule)

    def together(self, rank: int) -> dict[int, Together]:
        """The computations that a rank of the pipeline takes together, by the place of the first in its program."""
        return {it.place: it for it in together(self.program.actions[rank])} if self.overlaps else {}

    def stages_of(self, rank: int) -> list[int]:
        """The stages of a rank of the pipeline, in their order."""
        return [stage for stage, home in enumerate(self.schedule.rank_of) if home == rank]


def training_plan(
    ranks: int,
    layers: int,
    *,
    batch: int,
    dp: int = 0,
    pp: int = 1,
    tp: int = 1,
    cp: int = 1,
    microbatches: int = 1,
    parts: int = 0,
    layer_parts: int = 0,
    ep: int = 1,
    etp: int = 1,
    schedule: str | Schedule = "1f1b",
    chunks: int | None = None,
    costs: Sequence[float] | None = None,
    tied: bool = False,
    paired: bool = True,
) -> TrainingPlan:
    """The plan of a step on so many ranks, proved.

    layers: of the model. dp: replicas; 0 takes what `ranks` leaves. tp: ranks that share each layer. cp: ranks that
    share the tokens of each sample. batch: samples of a step over all replicas, dealt evenly to them and to their
    microbatches. parts: a power of two of fixed parts of the batch, which the replica with the most has in so many
    microbatches, a power of two; with pp, tp, ep or layer_parts each part is one. What is learned then has the same
    bits for any replicas, stages and shards. layer_parts: with these, a power of two of fixed parts of each layer, for
    any tp. ep: ranks that share the experts of a mixture, taken from dp x cp x tp; etp:
    ranks that share the hidden numbers of each expert.
    schedule: a name (see `SCHEDULES`), a CSV file of your own, or a value. chunks: stages a rank, where the schedule
    leaves that open. costs: of each layer, s a microbatch, for stages that take equally long; without them layers count
    alike. tied: the first and the last layer share a weight. paired: whether, under a schedule that allows it, messages
    to experts fly while another microbatch is computed.

    Raises `InputError` with everything that does not fit and what would.
    """
    numbers = {
        "ranks": ranks,
        "layers": layers,
        "batch": batch,
        "pp": pp,
        "tp": tp,
        "cp": cp,
        "ep": ep,
        "microbatches": microbatches,
    }
    for name, value in numbers.items():
        if whole(value, name) < 1:
            raise InputError(f"{name} is {value}", do="give a whole number, 1 or more")
    replicas = whole(dp, "dp") or ranks // (pp * cp * tp) or 1
    if dp < 0:
        raise InputError(f"dp is {dp}", do="give a number of replicas, or 0 to take what the ranks allow")
    faults, grouped = list(_mesh_faults(ranks, replicas, pp, tp, cp)), 1
    if cp > 1 and parts:
        faults.append((f"fixed parts of a batch go without cp={cp}", "take parts=0, or cp=1"))
    if layer_parts and not parts:
        faults.append((f"layer_parts={layer_parts} goes with fixed parts of the batch", "take parts=8, too"))
    if layer_wrong := fault(layer_parts, tp, "layer_parts", "tp"):
        what, do = layer_wrong.split(": ")
        faults.append((what, do))
    if wrong := fault(parts, replicas):
        what, do = wrong.split(": ")
        faults.append((what, do))
        parts = 0
    elif parts:
        most = max(node.parts for node in subtrees(parts, replicas))
        if microbatches > most or microbatches & (microbatches - 1):
            fitting = " or ".join(str(1 << level) for level in range(most.bit_length()))
            faults.append((f"{most} of {parts} fixed parts do not make {microbatches} microbatches", f"take {fitting}"))
        elif max(pp, tp, ep * etp, layer_parts) > 1 and microbatches not in (1, most):
            faults.append(("with pp, tp, ep or layer_parts each fixed part is a microbatch", "leave microbatches out"))
        elif max(pp, tp, ep * etp, layer_parts) == 1:
            grouped = most // microbatches
        microbatches = most // grouped
    faults += _expert_faults(ep, etp, replicas, tp, cp, parts)
    order: Schedule | None = None
    try:
        order = _schedule(schedule, pp, microbatches, chunks)
        microbatches = order.microbatches
    except InputError as error:
        where = f"{error.where}: " if error.where else ""
        faults.append((where + error.message, error.do))
    faults += [] if parts or wrong else _batch_faults(batch, replicas, microbatches)
    stages = order.stages if order else pp
    if layers < stages:
        held = f"{stages // pp} stages on each of {pp} ranks" if stages != pp else f"pp={pp} stages"
        faults.append((f"a model of {layers} layers cannot be cut into {held}", f"cut it into 1 to {layers}"))
    if costs is not None and len(costs) != layers:
        faults.append((f"there are {len(costs)} costs for {layers} layers", "give one a layer"))
    if faults or order is None:
        raise InputError(
            "; ".join(message for message, _ in faults), do="; ".join(dict.fromkeys(do for _, do in faults if do))
        )
    program = pipeline_program(order, reduce=True, tied=tied and order.stages > 1)
    prove(order)
    prove(program)
    partition = partition_layers([1.0] * layers if costs is None else costs, order.stages)
    shared = (tp, parts, layer_parts, ep, cp, etp)
    plan = TrainingPlan(replicas, pp, batch, program, partition, tied, *shared, paired, grouped)
    if plan.overlaps:
        deque(rounds_together(program, {}), maxlen=0)  # no rank waits for ever
    return plan


def _mesh_faults(ranks: int, dp: int, pp: int, tp: int, cp: int) -> Iterator[tuple[str, str]]:
    inner = {name: size for name, size in (("cp", cp), ("tp", tp)) if size > 1}
    count, group = dp * pp * cp * tp, cp * tp
    if count == ranks:
        return
    shared = "".join(f" {name}={size}" for name, size in inner.items())
    each = ranks // group if ranks % group == 0 else 0
    pairs = [f"dp={each // n} pp={n}{shared}" for n in range(1, each + 1) if each % n == 0]
    if not each:
        pairs = [f"{' x '.join(inner)}={n}" for n in range(1, ranks + 1) if ranks % n == 0]
    shown = ", ".join(pairs[:MOST_NAMED]) + (", ..." if len(pairs) > MOST_NAMED else "")
    given = f"dp={dp} x pp={pp}" + "".join(f" x {name}={size}" for name, size in inner.items())
    yield (
        f"{given} is {count} ranks, and there {'is 1' if ranks == 1 else f'are {ranks}'}",
        f"take {shown}" + (f", or start {count} ranks" if count > ranks else ""),
    )


def _expert_faults(ep: int, etp: int, dp: int, tp: int, cp: int, parts: int) -> Iterator[tuple[str, str]]:
    if (ranks := dp * cp * tp) % (ep * etp):
        fitting = [str(n) for n in range(1, ranks + 1) if ranks % n == 0]
        given = "dp x cp x tp" if cp > 1 else "dp x tp"
        asked, do = (f"ep={ep}", "ep") if etp == 1 else (f"ep={ep} x etp={etp}", "ep x etp")
        yield f"{asked} ranks of experts do not divide {given} = {ranks}", f"take {do}={' or '.join(fitting)}"
    elif etp > 1 and parts:
        yield f"fixed parts of a batch go without etp={etp}", "take parts=0, or etp=1"
    elif ep > 1 and parts and tp > 1:
        yield "fixed parts of a batch with ep go without tp", "take parts=0, or tp=1"
    elif ep > 1 and parts and dp != ep and not _aligned(ep, dp, parts):
        yield (
            f"experts on ep={ep} of dp={dp} replicas cannot add the gradients of fixed parts as a tree",
            f"take ep={dp}, or powers of two, or parts=0",
        )


def _aligned(ep: int, dp: int, parts: int) -> bool:
    """Whether the replicas of each line of experts have whole nodes of the tree."""
    nodes = subtrees(parts, dp)
    return all(root(nodes[first : first + ep]) for first in range(0, dp, ep))


def _batch_faults(batch: int, dp: int, microbatches: int) -> Iterator[tuple[str, str]]:
    parts = dp * microbatches
    if batch % parts == 0:
        return
    near = " or ".join(str(n) for n in (batch - batch % parts, batch - batch % parts + parts) if n)
    fit = [str(m) for m in range(1, batch // dp + 1) if batch % (dp * m) == 0]
    some = ", ".join(fit[:MOST_NAMED]) + (", ..." if len(fit) > MOST_NAMED else "")
    yield (
        f"a batch of {batch} samples does not divide into {microbatches} microbatches on each of {dp} replicas",
        f"take a batch of {near}" + (f", or microbatches={some}" if fit else ""),
    )


def _schedule(given: str | Schedule, pp: int, microbatches: int, chunks: int | None) -> Schedule:
    """The schedule that is meant, for pp ranks. Raises `InputError`."""
    if isinstance(given, str) and not given.lower().endswith(".csv"):
        return pipeline_schedule(given, pp, microbatches, **({} if chunks is None else {"chunks": chunks}))
    order = read_schedule(given) if isinstance(given, str) else given
    prove(order)
    wrong = [
        f"{what} {has}, not {wanted}"
        for what, has, wanted in (
            ("ranks:", order.ranks, pp),
            ("microbatches:", order.microbatches, microbatches),
        )
        if has != wanted
    ]
    if wrong:
        raise InputError(
            f"the schedule {order.name} is for {'; '.join(wrong)}",
            do=f"take pp={order.ranks} and microbatches={order.microbatches}",
        )
    return order
