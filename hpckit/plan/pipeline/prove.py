"""Proofs of pipeline schedules and of the programs made from them, without MPI."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from hpckit.errors import PlanError
from hpckit.plan.pipeline.price import receivers
from hpckit.plan.pipeline.program import Program, pipeline_program
from hpckit.plan.pipeline.schedule import COMPUTE, NONE, RECEIVES, Action, Schedule, in_order, peak_live

# How many faults a message names; the others are counted.
MOST_FAULTS = 8


@dataclass(frozen=True)
class ScheduleProof:
    """What was proved: so many actions and messages on so many ranks.

    live: for each rank the most microbatches whose activations it holds at once, summed over its stages. posted: for
    each rank the most receives that are posted and not used yet, which is how many buffers it takes.
    """

    ranks: int
    actions: int
    messages: int
    live: tuple[int, ...]
    posted: tuple[int, ...]


def prove_schedule(schedule: Schedule) -> ScheduleProof:
    """Raise `PlanError` unless every stage computes F, and B or I and W, of every microbatch once, and all ranks end.

    Adding the messages walks through all ranks and names those that wait for each other; then the program is proved as
    in `prove_program`.
    """
    wrong = schedule_faults(schedule)
    if wrong:
        raise PlanError(f"{schedule.title()}: {_first(wrong)}", do=_allowed(schedule))
    return prove_program(pipeline_program(schedule))


def prove_program(program: Program) -> ScheduleProof:
    """Raise `PlanError` unless a program computes what its schedule says, all its messages meet, and all ranks end.

    Checked: the compute actions stand in the schedule's order; every boundary between ranks is crossed once by each
    microbatch in each direction, between the right ranks; any two ranks receive in the order of the sends (so one tag
    is enough); every message is there before it is used, and is sent after it was made; gradients are reduced once,
    when they are complete; nobody waits for ever.
    """
    schedule, title = program.schedule, program.schedule.title()
    wrong = schedule_faults(schedule) or list(_order_faults(program))
    wrong = wrong or [*_message_faults(program), *_ending_faults(program)]
    wrong = wrong or list(_meeting_faults(program))
    if wrong:
        raise PlanError(f"{title}: {_first(wrong)}")
    for _ in in_order(program.actions, program.needs, title):
        pass
    sent = sum(action.sends is not None for actions in program.actions for action in actions)
    computed = sum(map(len, schedule.actions))
    return ScheduleProof(schedule.ranks, computed, sent, tuple(peak_live(schedule)), tuple(_posted(program)))


def schedule_faults(schedule: Schedule) -> list[str]:
    """What is missing, twice, or not where it belongs, a sentence each."""
    wrong = []
    for stage, rank in enumerate(schedule.rank_of):
        if not 0 <= rank < schedule.ranks:
            wrong.append(f"stage {stage} is on rank {rank}, there are {schedule.ranks} ranks")
    seen: Counter[Action] = Counter()
    for rank, actions in enumerate(schedule.actions):
        for action in actions:
            wrong += _misplaced(schedule, rank, action)
            seen[action] += 1
    for action, times in seen.items():
        if times > 1:
            wrong.append(f"stage {action.stage} does {action} {times} times")
    for stage in range(schedule.stages):
        for number in range(schedule.microbatches):
            kinds = "".join(kind for kind in COMPUTE if (Action(stage, kind, number)) in seen)
            if kinds not in ("FB", "FIW"):
                wrong.append(_incomplete(stage, number, kinds))
    return wrong


def _misplaced(schedule: Schedule, rank: int, action: Action) -> Iterator[str]:
    if action.kind not in COMPUTE or action.peer != NONE:
        yield f"rank {rank} does {action}, which is no F, B, I or W"
    elif not 0 <= action.stage < schedule.stages:
        yield f"rank {rank} does {action}, there are {schedule.stages} stages"
    elif not 0 <= action.microbatch < schedule.microbatches:
        yield f"rank {rank} does {action}, there are {schedule.microbatches} microbatches"
    elif schedule.rank_of[action.stage] != rank:
        yield f"rank {rank} does {action}, stage {action.stage} is on rank {schedule.rank_of[action.stage]}"


def _incomplete(stage: int, number: int, kinds: str) -> str:
    if "B" in kinds and ("I" in kinds or "W" in kinds):
        return f"stage {stage} does B of microbatch {number} and its half {'I' if 'I' in kinds else 'W'} again"
    missing = [kind for kind in "FIW" if kind not in kinds and not ("B" in kinds and kind in "IW")]
    if missing[-2:] == ["I", "W"]:
        missing[-2:] = ["B (or I and W)"]
    return f"stage {stage} never does {', '.join(missing)} of microbatch {number}"


def _order_faults(program: Program) -> Iterator[str]:
    """The compute actions of each rank are those of the schedule, in its order."""
    for rank, (actions, wanted) in enumerate(zip(program.actions, program.schedule.actions, strict=True)):
        computed = [action._replace(peer=NONE) for action in actions if action.kind in COMPUTE]
        for at, (is_there, belongs) in enumerate(zip(computed, wanted, strict=False)):
            if is_there != belongs:
                yield f"rank {rank} computes {is_there} as number {at}, the schedule says {belongs}"
                return
        if len(computed) != len(wanted):
            yield f"rank {rank} computes {len(computed)} actions, the schedule has {len(wanted)}"


def _expected(program: Program) -> Iterator[tuple[int, Action]]:
    """Every message, as what its sender and its receiver do, with the rank that does it."""
    schedule = program.schedule
    for (stage, kind), receiver in receivers(schedule).items():
        if kind == "B":  # the same message as after I
            continue
        sender, other = schedule.rank_of[stage], stage + (1 if kind == "F" else -1)
        for number in range(schedule.microbatches):
            yield sender, Action(stage, f"SEND_{kind}", number, receiver)
            yield receiver, Action(other, f"RECV_{kind}", number, sender)
    last = schedule.stages - 1
    for stage, other in ((0, last), (last, 0)) if program.tied else ():
        rank, peer = schedule.rank_of[stage], schedule.rank_of[other]
        if rank != peer:
            yield rank, Action(stage, "SEND_T", peer=peer)
            yield rank, Action(stage, "RECV_T", peer=peer)


def _message_faults(program: Program) -> Iterator[str]:
    """Every message leaves and arrives once, and there are no others."""
    found: Counter[tuple[int, Action]] = Counter()
    for rank, actions in enumerate(program.actions):
        messages = (action if action.kind in RECEIVES else action.sends for action in actions)
        found.update((rank, message) for message in messages if message is not None)
    expected = Counter(_expected(program))
    for rank, action in expected - found:
        yield f"rank {rank} never does {action}"
    for rank, action in found - expected:
        again = " again" if (rank, action) in expected else ", which is no message of this schedule"
        yield f"rank {rank} does {action}{again}"


def _ending_faults(program: Program) -> Iterator[str]:
    """Gradients are tied and reduced once, where asked for, on the rank that has them."""
    schedule = program.schedule
    found = Counter(
        (rank, act) for rank, actions in enumerate(program.actions) for act in actions if act.kind in ("TIE", "REDUCE")
    )
    expected = Counter((rank, Action(stage, "REDUCE")) for stage, rank in enumerate(schedule.rank_of))
    if not program.reduced:
        expected.clear()
    if program.tied:
        expected.update((schedule.rank_of[stage], Action(stage, "TIE")) for stage in (0, schedule.stages - 1))
    for rank, action in expected - found:
        yield f"rank {rank} never does {action}"
    for rank, action in found - expected:
        yield f"rank {rank} does {action} once too often"


def _meeting_faults(program: Program) -> Iterator[str]:
    """Between any two ranks the receives stand in the order of the sends."""
    sends: dict[tuple[int, int], list[Action]] = {}
    takes: dict[tuple[int, int], list[Action]] = {}
    for rank, actions in enumerate(program.actions):
        for action in actions:
            if action.sends is not None:
                sends.setdefault((rank, action.peer), []).append(action.sends)
            elif action.kind in RECEIVES:
                takes.setdefault((action.peer, rank), []).append(action)
    last = program.schedule.stages - 1
    for (sender, receiver), sent in sends.items():
        for number, (out, into) in enumerate(zip(sent, takes[sender, receiver], strict=True)):
            kind = out.kind[-1]
            stage = {"F": out.stage + 1, "I": out.stage - 1, "T": last - out.stage}[kind]
            if (stage, f"RECV_{kind}", out.microbatch) != into[:3]:
                yield f"message {number} from rank {sender} to rank {receiver} is sent by {out} and taken by {into}"
                break


def _posted(program: Program) -> list[int]:
    """For each rank the most receives that are posted at once, until the action that uses them."""
    peaks = []
    for actions in program.actions:
        open_now: set[tuple[int, str, int]] = set()
        peak = 0
        for stage, kind, number, _ in actions:
            if kind in RECEIVES:
                open_now.add((stage, kind[-1], number))
                peak = max(peak, len(open_now))
            else:
                open_now.discard((stage, {"B": "I", "TIE": "T"}.get(kind, kind), number))
        peaks.append(peak)
    return peaks


def _first(wrong: list[str]) -> str:
    more = f"; and {len(wrong) - MOST_FAULTS} more" if len(wrong) > MOST_FAULTS else ""
    return "; ".join(wrong[:MOST_FAULTS]) + more


def _allowed(schedule: Schedule) -> str:
    last = schedule.microbatches - 1
    return f"let each stage do F, and B or both I and W, of every microbatch 0 to {last} once, on its rank"
