"""Every pipeline schedule by name. p ranks, m microbatches; times of the bubbles in units of F = I = W = 1, B = 2."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

from hpckit.errors import InputError, nearest
from hpckit.plan.inputs.numbers import count as whole
from hpckit.plan.pipeline.schedule import Action, Schedule


def gpipe(ranks: int, microbatches: int) -> Schedule:
    """All forward passes, then all backward passes (Huang et al. 2019, arXiv:1811.06965).

    Bubble (p - 1) / (m + p - 1); every rank holds all m microbatches.
    """
    lists = [[*_each(rank, "F", microbatches), *_each(rank, "B", microbatches)] for rank in range(ranks)]
    return _schedule("gpipe", microbatches, range(ranks), lists)


def one_f_one_b(ranks: int, microbatches: int) -> Schedule:
    """After a warm-up, one forward and one backward pass in turn (Narayanan et al. 2019, PipeDream).

    The bubble of GPipe; rank r holds at most p - r microbatches.
    """
    lists = []
    for rank in range(ranks):
        ahead = min(ranks - 1 - rank, microbatches)
        lists.append(_alternating(_each(rank, "F", microbatches), _each(rank, "B", microbatches), ahead))
    return _schedule("1f1b", microbatches, range(ranks), lists)


def interleaved(ranks: int, microbatches: int, chunks: int = 2) -> Schedule:
    """1F1B with several stages a rank, p microbatches of each in turn (Narayanan et al. 2021, arXiv:2104.04473).

    Bubble (p - 1) / (v m + p - 1) with v chunks, for 1 + (p - 1) / (p v) of the memory of 1F1B. Raises `InputError`
    unless p divides m.
    """
    if chunks < 2:
        raise InputError(f"interleaved 1F1B takes 2 chunks a rank or more, not {chunks}", do="take 1f1b for one")
    if microbatches % ranks:
        below = microbatches - microbatches % ranks
        near = " or ".join(str(m) for m in (below, below + ranks) if m)
        raise InputError(
            f"interleaved 1F1B on {ranks} ranks takes a multiple of {ranks} microbatches, not {microbatches}",
            do=f"take {near} microbatches; looped_bfs and the zb schedules take any number",
        )
    total, group = chunks * microbatches, chunks * ranks
    lists = []
    for rank in range(ranks):
        order = [(k // ranks % chunks, k // group * ranks + k % ranks) for k in range(total)]
        forward = [Action(chunk * ranks + rank, "F", number) for chunk, number in order]
        backward = [Action((chunks - 1 - chunk) * ranks + rank, "B", number) for chunk, number in order]
        ahead = min(2 * (ranks - 1 - rank) + (chunks - 1) * ranks, total)
        lists.append(_alternating(forward, backward, ahead))
    return _schedule("interleaved", microbatches, _looped(ranks, chunks), lists)


def looped_bfs(ranks: int, microbatches: int, chunks: int = 2) -> Schedule:
    """Several stages a rank, all microbatches through one before the next (Lamy-Poirier 2023, arXiv:2211.05953).

    Bubble (p - 1) / (v m + p - 1) from m = p on; every rank holds all. The weights of a stage are used in one stretch,
    and its gradients are complete early.
    """
    if chunks < 1:
        raise InputError(f"a rank holds 1 chunk or more, not {chunks}")
    lists = []
    for rank in range(ranks):
        own = [chunk * ranks + rank for chunk in range(chunks)]
        forward = chain.from_iterable(_each(stage, "F", microbatches) for stage in own)
        backward = chain.from_iterable(_each(stage, "B", microbatches) for stage in reversed(own))
        lists.append([*forward, *backward])
    return _schedule("looped_bfs", microbatches, _looped(ranks, chunks), lists)


def zb_h1(ranks: int, microbatches: int) -> Schedule:
    """1F1B whose W fill the drain (Qi et al. 2024, arXiv:2401.10241, handcrafted schedule 1).

    Bubble (p - 1) / (3 m + p - 1) from m = p on, with the memory of 1F1B: p microbatches.
    """
    return _zero_bubble("zb_h1", ranks, microbatches, 1)


def zb_h2(ranks: int, microbatches: int) -> Schedule:
    """A long warm-up, after which no rank waits until its last action (Qi et al. 2024, schedule 2).

    This holds from m = 2 p - 1 on; a rank holds at most 2 p - 1 microbatches. The gain shows where steps follow each
    other without a barrier: rank r ends r units after rank 0.
    """
    return _zero_bubble("zb_h2", ranks, microbatches, 2)


def zb_v(ranks: int, microbatches: int) -> Schedule:
    """Two stages a rank, folded: the first and the last stage are on rank 0 (Qi et al. 2024, section 6).

    From m = 2 p - 1 on no rank waits between its first and its last action. It needs the memory of 1F1B (2 p
    microbatches of stages half as large) and sends twice as many messages.
    """
    last = 2 * ranks - 1
    enough = max(microbatches, last)  # with fewer the same order, without the microbatches that are not there
    lists = []
    for rank in range(ranks):
        down, up = (rank, "F"), (last - rank, "F")
        down_back, up_back = [(rank, kind) for kind in "IW"], [(last - rank, kind) for kind in "IW"]
        warm, tail, drain = ranks - rank, enough - last + rank, ranks - 1 - rank
        order = [down] * (2 * warm - 1) + [up, down] * rank + [up, *up_back] * warm
        order += [down, *down_back, up, *up_back] * tail + [*down_back, up, *up_back] * drain
        order += [down_back[0], up_back[0]] * rank + down_back * warm + [up_back[1]] * rank + [down_back[1]] * rank
        lists.append(_numbered(order, microbatches))
    return _schedule("zb_v", microbatches, [*range(ranks), *reversed(range(ranks))], lists)


def dualpipe_v(ranks: int, microbatches: int) -> Schedule:
    """DualPipe cut in half: the folded stages of `zb_v`, forward and backward passes of different microbatches in turn.

    So the messages of one, as those of experts, can hide behind the other (DeepSeek-AI 2024, arXiv:2412.19437; the
    half: github.com/deepseek-ai/DualPipe).

    Bubble (p - 1) / (6 m + p - 1) from m = 2 p on; a rank holds at most p + 1/2 microbatches. B are cut into I and W
    only at the ends.
    """
    last, enough = 2 * ranks - 1, max(microbatches, 2 * ranks)
    lists = []
    for rank in range(ranks):
        down, up, late, own = rank, last - rank, ranks - 1 - rank, rank + 1
        order = [(down, "F")] * (2 * late) + [(down, "F"), (up, "F")] * own
        order += [(up, "I"), (up, "W"), (up, "F")] * late
        order += [(down, "F"), (up, "B"), (up, "F"), (down, "B")] * (enough - 2 * ranks + own)
        order += [(up, "B"), (up, "F"), (down, "B")] * late
        both, first_saved = [up, down] * own, 2 * (own // 2) + (rank % 2 == 0)
        order += [(stage, "B" if n < first_saved else "I") for n, stage in enumerate(both)]
        waiting = deque(both[first_saved:])
        for _ in range(late):
            order += [(waiting.popleft(), "W"), (down, "I")]
            waiting.append(down)
        order += [(stage, "W") for stage in waiting]
        lists.append(_halves_after_wholes(order, microbatches))
    return _schedule("dualpipe_v", microbatches, [*range(ranks), *reversed(range(ranks))], lists)


def zb_wave(ranks: int, microbatches: int, chunks: int = 4) -> Schedule:
    """`zb_v` folded again: a microbatch goes down the ranks and up, once for every two stages of a rank.

    The waves of Liu et al. 2023 (Hanayo, arXiv:2308.15762), whose turns cost no message, with W in the gaps. A rank
    holds little more than p microbatches. Raises `InputError` unless the number of chunks is even.
    """
    if chunks < 2 or chunks % 2:
        raise InputError(f"waves take an even number of chunks a rank, not {chunks}", do="take 2 or 4 chunks")
    down = [*range(ranks), *reversed(range(ranks))]
    return _greedy("zb_wave", microbatches, down * (chunks // 2), chunks * (ranks + 1))


def interleaved_zb(ranks: int, microbatches: int, chunks: int = 2) -> Schedule:
    """Several stages a rank, looped, whose W fill the gaps (as PyTorch's InterleavedZeroBubble; Qi et al. 2024).

    I goes before F, and W only where a rank would wait; a rank holds little more than p microbatches.
    """
    if chunks < 2:
        raise InputError(f"interleaved stages take 2 chunks a rank or more, not {chunks}", do="take zb_h1 for one")
    return _greedy("interleaved_zb", microbatches, _looped(ranks, chunks), chunks * ranks)


def _greedy(name: str, microbatches: int, rank_of: list[int], most: int) -> Schedule:
    """Every rank does what it can, by the clock of equal times: I before F before W, of the latest stage first.

    most: stages of microbatches that a rank holds at once. A forward pass of the last stages is never kept from
    beginning, so that what is under way can end.
    """
    stages, ranks = len(rank_of), max(rank_of) + 1
    done: dict[tuple[int, str, int], int] = {}  # when an action has ended
    lists: list[list[Action]] = [[] for _ in range(ranks)]
    held, clock, left = [0] * ranks, 0, 3 * stages * microbatches
    own = [[stage for stage in reversed(range(stages)) if rank_of[stage] == rank] for rank in range(ranks)]
    following = {(stage, kind): 0 for stage in range(stages) for kind in "FIW"}

    def can(stage: int, kind: str, held: int) -> bool:
        number = following[stage, kind]
        if number == microbatches or (kind == "F" and held >= most and stage < stages - ranks):
            return False
        needs = {"F": [(stage - 1, "F")], "I": [(stage, "F"), (stage + 1, "I")], "W": [(stage, "I")]}[kind]
        return all(done.get((s, k, number), clock + 1) <= clock for s, k in needs if 0 <= s < stages)

    while left:
        for rank in range(ranks):
            ready = ((stage, kind) for kind in "IFW" for stage in own[rank] if can(stage, kind, held[rank]))
            stage, kind = next(ready, (-1, ""))
            if kind:
                number = following[stage, kind]
                following[stage, kind] += 1
                done[stage, kind, number] = clock + 1
                held[rank] += (kind == "F") - (kind == "W")
                lists[rank].append(Action(stage, kind, number))
                left -= 1
        clock += 1
    return _schedule(name, microbatches, rank_of, lists)


def _halves_after_wholes(order: Iterable[tuple[int, str]], microbatches: int) -> list[Action]:
    """As `_numbered`, where B and I of a stage share one count; W follow the I of their stage."""
    counts: dict[tuple[int, str], int] = {}
    halves: dict[int, deque[int]] = {}
    actions = []
    for stage, kind in order:
        if kind == "W":
            number = halves[stage].popleft()
        else:
            key = (stage, "F" if kind == "F" else "B")
            number = counts[key] = counts.get(key, -1) + 1
            if kind == "I":
                halves.setdefault(stage, deque()).append(number)
        if number < microbatches:
            actions.append(Action(stage, kind, number))
    return actions


def _zero_bubble(name: str, ranks: int, microbatches: int, reach: int) -> Schedule:
    """Each rank starts `reach` microbatches more than the next one, and ends with as many W more; see `zb_h1`, `zb_h2`.

    The last ranks save W for the end, so that during the drain a rank waits for I and at most one other action.
    """
    most = reach * (ranks - 1) + 1
    enough = max(microbatches, most)  # with fewer the same order, without the microbatches that are not there
    lists = []
    for rank in range(ranks):
        late = reach * rank
        kinds = "F" * (most - late) + "IWF" * (enough - most) + "IF" * late + "IW" * (most - late) + "W" * late
        lists.append(_numbered(((rank, kind) for kind in kinds), microbatches))
    return _schedule(name, microbatches, range(ranks), lists)


def _each(stage: int, kind: str, microbatches: int) -> list[Action]:
    return [Action(stage, kind, number) for number in range(microbatches)]


def _alternating(forward: list[Action], backward: list[Action], ahead: int) -> list[Action]:
    """`ahead` forward actions, then one of each in turn, then the rest of the backward ones."""
    pairs = zip(forward[ahead:], backward, strict=False)
    return [*forward[:ahead], *chain.from_iterable(pairs), *backward[len(forward) - ahead :]]


def _numbered(order: Iterable[tuple[int, str]], microbatches: int) -> list[Action]:
    """Stages and kinds with their microbatches, counted from 0; those beyond the last are left out."""
    counts: dict[tuple[int, str], int] = {}
    actions = []
    for what in order:
        number = counts[what] = counts.get(what, -1) + 1
        if number < microbatches:
            actions.append(Action(*what, number))
    return actions


def _looped(ranks: int, chunks: int) -> list[int]:
    return [stage % ranks for stage in range(ranks * chunks)]


def _schedule(name: str, microbatches: int, rank_of: Iterable[int], lists: list[list[Action]]) -> Schedule:
    return Schedule(name, microbatches, tuple(rank_of), tuple(map(tuple, lists)))


MOST_ACTIONS = 4_000_000  # beyond, a schedule fills the memory
# Name -> (what makes the schedule, the options that it takes).
SCHEDULES: dict[str, tuple[Callable[..., Schedule], tuple[str, ...]]] = {
    "gpipe": (gpipe, ()),
    "1f1b": (one_f_one_b, ()),
    "interleaved": (interleaved, ("chunks",)),
    "looped_bfs": (looped_bfs, ("chunks",)),
    "zb_h1": (zb_h1, ()),
    "zb_h2": (zb_h2, ()),
    "zb_v": (zb_v, ()),
    "dualpipe_v": (dualpipe_v, ()),
    "interleaved_zb": (interleaved_zb, ("chunks",)),
    "zb_wave": (zb_wave, ("chunks",)),
}
ALIASES = {
    "onefoneb": "1f1b",
    "interleaved1f1b": "interleaved",
    "loopedbreadthfirst": "looped_bfs",
    "breadthfirst": "looped_bfs",
    "wave": "zb_wave",
    "interleavedzerobubble": "interleaved_zb",
}


def pipeline_schedule(name: str, ranks: int, microbatches: int, **options: Any) -> Schedule:
    """A schedule by its name (`SCHEDULES` has all): for `ranks` ranks and so many microbatches a step.

    chunks: stages that each rank holds (interleaved, looped_bfs); other schedules fix it. Raises `InputError` for
    unknown names and options, and for numbers that the schedule does not allow.
    """
    build, takes = SCHEDULES[schedule_name(name)]
    ranks = whole(ranks, "the number of stages")
    microbatches = whole(microbatches, "the number of microbatches")
    if ranks < 1:
        raise InputError(f"a pipeline of {ranks} stages", do="give 1 stage or more")
    if microbatches < 1:
        raise InputError(f"a step of {microbatches} microbatches", do="give 1 microbatch or more")
    extra = sorted(set(options) - set(takes))
    if extra:
        raise InputError(
            f"the schedule {schedule_name(name)} takes no option {', '.join(extra)}",
            do=f"its options: {', '.join(takes)}" if takes else "it has no options",
        )
    given = {key: whole(value, f"option {key}") for key, value in options.items()}
    # The zb schedules are made for 2 p - 1 microbatches at least, and cut.
    wide = max(microbatches, 2 * ranks) if build in (zb_h1, zb_h2, zb_v, dualpipe_v) else microbatches
    if ranks * wide * max(given.get("chunks", 2), 1) * 2 > MOST_ACTIONS:
        raise InputError(
            f"a schedule of {ranks} ranks and {microbatches} microbatches is too large",
            do=f"stay below {MOST_ACTIONS} actions in all",
        )
    return build(ranks, microbatches, **given)


def schedule_name(given: str) -> str:
    """The name in `SCHEDULES` for any spelling of it, as ZB-H1 or zbh1. Raises `InputError` with the nearest."""
    plain = {name.replace("_", ""): name for name in SCHEDULES} | ALIASES
    wanted = "".join(letter for letter in given.lower() if letter.isalnum())
    if wanted in plain:
        return plain[wanted]
    near = nearest(wanted, plain)
    known = f"choose {', '.join(SCHEDULES)}, or a table in a file (.csv)"
    raise InputError(f"there is no schedule {given!r}", do=f"did you mean {plain[near]!r}? {known}" if near else known)


def closed_form(schedule: Schedule) -> tuple[float, float] | None:
    """The bubble that theory gives for F = I = W without transfers: of a step alone, and of steps in a row.

    As shares of the time of all ranks, see `SchedulePrice.bubble` and `open_bubble`. None where there is no closed
    form: tables of your own, and fewer microbatches than the schedule needs for its name's promise.
    """
    p, m, v = schedule.ranks, schedule.microbatches, schedule.chunks
    # Name -> (units that a rank computes, of which the bubble is p - 1; from which m on; no bubble in a row).
    forms = {
        "gpipe": (m, 1, False),
        "1f1b": (m, 1, False),
        "interleaved": (v * m, p, False),
        "looped_bfs": (v * m, p if v > 1 else 1, False),
        "zb_h1": (3 * m, p, False),
        "zb_h2": (3 * m, 2 * p - 1, True),
        "zb_v": (6 * m, 2 * p - 1, True),
        "dualpipe_v": (6 * m, 2 * p, False),
    }
    if schedule.name not in forms:
        return None
    work, least, none_in_a_row = forms[schedule.name]
    if m < least:
        return None
    bubble = (p - 1) / (work + p - 1)
    return bubble, 0.0 if none_in_a_row else bubble
