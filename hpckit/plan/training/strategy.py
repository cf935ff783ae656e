"""How a training step is split over the ranks: the sizes of the axes, the microbatches, what is sharded and recomputed.

Ranks are numbered with tp innermost, then cp, pp, dp, as Llama 3 has them (Llama team 2024, section 3.3.2). Experts
live on a mesh of their own over the same ranks (folding, arXiv:2504.14960): etp, which cuts each expert,
innermost, then ep, of the ranks of tp, cp and dp.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from hpckit.errors import InputError
from hpckit.plan.pipeline.program import OVERLAPPED
from hpckit.plan.training.model import LanguageModel

AXES = ("dp", "pp", "cp", "tp")
EXPERT_AXES = ("ep", "etp")
RECOMPUTE = ("none", "selective", "full")
SHARDING = {0: "nothing", 1: "optimizer", 2: "and gradients", 3: "and parameters"}
CONTEXT = ("ring", "ulysses", "gather")
# Schedule -> chunks a rank holds (0: any from 2 on), microbatches it takes at the least per rank of the pipeline, and
# whether their number must be a multiple of the ranks.
SCHEDULES: dict[str, tuple[int, float, bool]] = {
    "gpipe": (1, 0, False),
    "1f1b": (1, 0, False),
    "interleaved": (0, 1, True),
    "zb_h1": (1, 1, False),
    "zb_v": (2, 2, False),
    "dualpipe_v": (2, 2, False),
}
MOST_NAMED = 6


class Precision(NamedTuple):
    """Bytes a parameter: of its value, its gradient, and of the optimizer's state (a copy and two moments, float32);
    sent: of its gradient on the way to other replicas.

    Activations, and the messages that carry them, have numbers of as many bytes as the values.
    """

    parameter: int = 2
    gradient: int = 4
    optimizer: int = 12
    sent: int = 4


MIXED = Precision()
SINGLE = Precision(4, 4, 8)  # all in float32


@dataclass(frozen=True)
class Strategy:
    """A training step on `dp * pp * cp * tp` ranks.

    ep, etp: ranks among which experts are dealt, and neighbors that hold parts of each of these experts.
    batch: samples of a step, of `context` tokens each; microbatch: samples of one. schedule, chunks: of the pipeline.
    sharding: ZeRO's stage, over dp and cp. recompute: "selective" recomputes what takes much memory and little time:
    the attention between its matrices, with `flash` the outputs of norms and activations; "full" whole blocks.
    sequence: ranks of tp share the tokens between the matrices. context_by: how ranks of cp meet all keys. flash:
    scores of the attention are never stored. fused: products add to the gradients of the weights. overlap: messages of
    dp hide behind the backward pass. paired: where the schedule lets messages to experts hide behind another microbatch
    (`search.pairs_pay`), they do.
    """

    batch: int
    context: int
    dp: int = 1
    pp: int = 1
    cp: int = 1
    tp: int = 1
    ep: int = 1
    etp: int = 1
    microbatch: int = 1
    schedule: str = "1f1b"
    chunks: int = 1
    sharding: int = 0
    recompute: str = "none"
    sequence: bool = True
    context_by: str = "ring"
    flash: bool = True
    fused: bool = True
    overlap: bool = True
    paired: bool = True
    precision: Precision = MIXED

    @property
    def ranks(self) -> int:
        """How many ranks."""
        return self.dp * self.pp * self.cp * self.tp

    @property
    def twins(self) -> int:
        """Ranks that hold the same parts of the same experts."""
        return self.dp * self.cp * self.tp // (self.ep * self.etp)

    @property
    def together(self) -> int:
        """Neighboring replicas whose ranks exchange tokens for experts: so many have whole lines of ep and etp."""
        return next(n for n in divisors(self.dp) if n * self.cp * self.tp % (self.ep * self.etp) == 0)

    @property
    def microbatches(self) -> int:
        """Microbatches of a replica in a step."""
        return self.batch // (self.dp * self.microbatch)

    @property
    def tokens(self) -> int:
        """Tokens of a microbatch on a rank of cp."""
        return self.microbatch * self.context // self.cp

    @property
    def item(self) -> int:
        """Bytes of a number of the activations: those of a parameter."""
        return self.precision.parameter

    @property
    def order(self) -> str:
        """The schedule in a few words; apart: without pairs."""
        chunks = f" v={self.chunks}" if self.chunks > 1 else ""
        apart = "" if self.paired or self.schedule not in OVERLAPPED else " apart"
        return f"{self.schedule}{chunks}{apart}"

    def __str__(self) -> str:
        axes = " ".join(
            f"{axis}={getattr(self, axis)}"
            for axis in (*AXES, *(axis for axis in EXPERT_AXES if getattr(self, axis) > 1))
        )
        return (
            f"{axes}, microbatch {self.microbatch} x {self.microbatches}"
            + (f", {self.order}" if self.pp > 1 else "")
            + (f", {self.context_by}" if self.cp > 1 else "")
            + f", ZeRO {self.sharding}, recompute {self.recompute}"
        )


def faults(model: LanguageModel, it: Strategy, ranks: int | None = None) -> Iterator[tuple[str, str]]:
    """Everything that does not fit, each with what would."""
    for axis in (*AXES, *EXPERT_AXES, "microbatch", "batch", "context"):
        if getattr(it, axis) < 1:
            yield f"{axis} is {getattr(it, axis)}", f"give {axis} 1 or more"
            return
    if ranks is not None and it.ranks != ranks:
        rest = it.pp * it.cp * it.tp
        fit = f"dp={ranks // rest}" if ranks % rest == 0 else f"axes whose product divides {ranks}"
        yield f"dp x pp x cp x tp is {it.ranks}, and there are {ranks} ranks", f"take {fit}"
    for what, count in (("heads", model.heads), ("columns of the MLP", model.hidden)):
        if count % it.tp:
            yield f"tp={it.tp} does not divide {count} {what}", f"take tp of {_some(divisors(model.heads))}"
    if model.kv_heads % it.tp and it.tp % model.kv_heads:
        yield f"tp={it.tp} and {model.kv_heads} key heads do not divide each other", f"take tp of {model.kv_heads}"
    if it.pp * it.chunks > model.layers + 2:  # embedding and head may be stages of their own
        held = f"{it.chunks} stages on each of pp={it.pp}"
        yield f"{model.layers} layers cannot be cut into {held}", f"take pp x chunks up to {model.layers + 2}"
    if it.cp > 1 and it.context % (2 * it.cp):
        yield f"a context of {it.context} does not divide into 2 cp={2 * it.cp} chunks", "take a cp that divides it"
    if it.cp > 1 and it.context_by == "ulysses" and model.kv_heads % (it.cp * it.tp):
        most = [n for n in divisors(model.kv_heads) if n % it.tp == 0]
        yield (
            f"Ulysses deals {model.kv_heads} key heads to cp x tp={it.cp * it.tp}",
            f"take cp of {_some([n // it.tp for n in most])}, or the ring" if most else "take the ring",
        )
    if it.batch % (it.dp * it.microbatch):
        near = it.batch // (it.dp * it.microbatch) * it.dp * it.microbatch
        do = f"take a batch of {near or it.dp * it.microbatch}, or a microbatch and dp that divide {it.batch}"
        yield f"a batch of {it.batch} does not divide into microbatches of {it.microbatch} on dp={it.dp}", do
        return
    yield from _schedule_faults(it)
    yield from _expert_faults(model, it)
    if it.sharding not in SHARDING:
        yield f"there is no ZeRO stage {it.sharding}", "take 0 to 3"
    if it.recompute not in RECOMPUTE:
        yield f"recompute is {it.recompute!r}", f"take {', '.join(RECOMPUTE)}"
    if it.context_by not in CONTEXT:
        yield f"the context axis works by {it.context_by!r}", f"take {', '.join(CONTEXT)}"


def _schedule_faults(it: Strategy) -> Iterator[tuple[str, str]]:
    if it.schedule not in SCHEDULES:
        yield f"there is no schedule {it.schedule!r} here", f"take {', '.join(SCHEDULES)}"
        return
    chunks, least, multiple = SCHEDULES[it.schedule]
    if it.pp == 1:
        if it.schedule != "1f1b" or it.chunks != 1:
            yield f"{it.schedule} with {it.chunks} chunks is a schedule of a pipeline, and pp is 1", "take 1f1b"
        return
    if it.chunks != (chunks or max(it.chunks, 2)):
        yield f"{it.schedule} holds {chunks or '2 or more'} chunks a rank, not {it.chunks}", "change the chunks"
    if it.microbatches < least * it.pp - (least == 2) or (multiple and it.microbatches % it.pp):
        rule = f"a multiple of {it.pp}" if multiple else f"{int(least * it.pp - (least == 2))} or more"
        yield f"{it.schedule} on pp={it.pp} takes {rule} microbatches, not {it.microbatches}", "take 1f1b, or others"


def _expert_faults(model: LanguageModel, it: Strategy) -> Iterator[tuple[str, str]]:
    named = {axis: getattr(it, axis) for axis in EXPERT_AXES if getattr(it, axis) > 1}
    if not named:
        return
    given = " x ".join(f"{axis}={size}" for axis, size in named.items())
    if model.experts is None:
        yield f"{given}, and {model.name} has no experts", f"take {' and '.join(f'{axis}=1' for axis in named)}"
        return
    if model.experts.count % it.ep:
        yield f"ep={it.ep} does not divide {model.experts.count} experts", "take a divisor"
    if model.experts.hidden % it.etp:
        yield f"etp={it.etp} does not divide {model.experts.hidden} numbers inside an expert", "take a divisor"
    if (ranks := it.dp * it.cp * it.tp) % (it.ep * it.etp):
        yield f"{given} does not divide dp x cp x tp={ranks}", "take a divisor"


def require(model: LanguageModel, it: Strategy, ranks: int | None = None) -> None:
    """Raise `InputError` with everything that does not fit, and what would."""
    wrong = list(faults(model, it, ranks))
    if wrong:
        raise InputError("; ".join(said for said, _ in wrong), do="; ".join(dict.fromkeys(do for _, do in wrong)))


def divisors(number: int) -> list[int]:
    """All divisors, ascending."""
    low = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return low + [number // n for n in reversed(low) if n * n != number]


def _some(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:MOST_NAMED])) + (", ..." if len(numbers) > MOST_NAMED else "")
