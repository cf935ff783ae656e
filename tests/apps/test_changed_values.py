"""Values that change by themselves: NaN, flipped bits in a step, flipped bits in messages; each is found and named.

Of the apps one, so that a mistake is seen soon: `python -m tests.faults --tier T0`, a stage of CI, does all of them.
"""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI

from hpckit.comm.checksums import End, Seals, SingleSeals, checksum
from hpckit.errors import BlowUpError, InputError, SilentCorruptionError
from hpckit.io.checkpoint.state import Piece, State
from hpckit.run.nan_guard import require_finite
from hpckit.run.redundant_step import Kept
from hpckit.settings.config import load
from tests.faults.jobs import rows_of
from tests.faults.programs.cases import CASES
from tests.faults.taken_out import SAFEGUARDS


def state_of(block: np.ndarray, start: tuple[int, ...]) -> State:
    return State([Piece("u", tuple(a + n for a, n in zip(start, block.shape, strict=True)), start, block)])


def test_what_is_not_finite_is_named_and_large_numbers_are_no_loss() -> None:
    large = np.full((5, 7), 1.7e308)
    require_finite(MPI.COMM_SELF, 3, state_of(large, (0, 0)))
    require_finite(MPI.COMM_SELF, 3, state_of(np.full(9, 3e38, np.float32), (0,)))
    require_finite(MPI.COMM_SELF, 3, state_of(np.arange(4), (2,)))
    for value in (np.nan, np.inf, -np.inf):
        for dtype in (np.float32, np.float64):
            block = np.zeros((5, 14), dtype)[:, ::2]  # not contiguous
            block[4, 6] = value
            with pytest.raises(BlowUpError, match=f"u is not finite, but {value}") as caught:
                require_finite(MPI.COMM_SELF, 3, state_of(block, (11, 13)))
            assert caught.value.where == "rank 0, step 3, u[15, 19]"


def test_results_are_compared_bit_by_bit() -> None:
    first = np.array([[1.0, 0.0, np.nan], [4.0, 5.0, 6.0]])
    kept = Kept(1, state_of(first, (7, 0)))
    first[0, 0] = 9.0  # what is kept is a copy
    same = np.array([[1.0, 0.0, np.nan], [4.0, 5.0, 6.0]])
    assert kept.difference(Kept(1, state_of(same, (7, 0)))) is None, "NaN has the bits of itself"
    for place, value in (((0, 1), -0.0), ((1, 2), np.nextafter(6.0, 7.0))):
        other = same.copy()
        other[place] = value
        found = kept.difference(Kept(1, state_of(other, (7, 0))))
        assert found is not None
        assert (found["name"], found["element"], found["count"]) == ("u", [place[0] + 7, place[1]], 1)
    assert kept.read("u", (8, 1), (1, 2)).tolist() == [[5.0, 6.0]]


def test_checksums_tell_a_bit_a_swap_and_a_message_of_another_exchange() -> None:
    values = np.arange(12.0).reshape(3, 4)
    assert checksum([values[:, 1:3]]) == checksum([np.ascontiguousarray(values[:, 1:3])])
    assert checksum([values[:2], values[2:]]) == checksum([values]) != checksum([values[::-1]])
    comm = MPI.COMM_SELF
    seals, late = Seals(comm), Seals(comm)
    seals.start([End(0, 5, "halo along x", [values])], [(0, 5)])
    seals.finish([End(0, 5, "halo along x", [values.copy()])])
    seals.start([End(0, 5, "halo along x", [values])], [(0, 5)])
    changed = values.copy()
    changed.view(np.uint8).reshape(-1)[50] ^= 2
    with pytest.raises(SilentCorruptionError, match="the halo along x from rank 0 to rank 0 is not what was sent"):
        seals.finish([End(0, 5, "halo along x", [changed])])
    seals.start([End(0, 5, "halo along x", [values])], [])  # the third of one exchange meets the first of another
    late.start([], [(0, 5)])
    with pytest.raises(SilentCorruptionError, match=r"3 of rank 0 .* 1 was due"):
        late.finish([End(0, 5, "halo along x", [values])])
    seals.finish([])


def test_checks_that_cannot_be_are_refused() -> None:
    with pytest.raises(InputError, match="only with repro = true"):
        load("melt", ["checks.replay=10"], {})
    assert load("melt", ["checks.replay=10", "repro=true"], {}).config.checks.replay == 10
    messages = load("heat", ["checks.messages=true"], {})
    assert "fields on the host" in messages.app.device_problems(messages.config, gpu=True)[0]
    assert messages.app.device_problems(messages.config, gpu=False) == []


def test_changed_values_are_named_and_not_saved() -> None:
    names = [f"{kind}:diffusion" for kind in ("nan", "gate", "flip")]
    rows = list(rows_of("injecting", "value", 2, "20261121", names))
    assert [(row["case"], row["problem"]) for row in rows if not row["passed"]] == []
    assert len(rows) == len(names)


@pytest.mark.nightly
def test_changed_values_of_every_app() -> None:
    names = [f"{kind}:{app}" for app in CASES for kind in ("nan", "gate", "flip")]
    for seed in "123":
        rows = list(rows_of("injecting", "value", 2, seed, names))
        assert [(row["case"], row["problem"]) for row in rows if not row["passed"]] == []


def test_checksums_of_single_messages_are_in_turn() -> None:
    sender = receiver = SingleSeals(MPI.COMM_SELF, 7, "message of the pipeline")
    first, second = np.arange(5.0), np.arange(3, dtype=np.int32)
    dues = [receiver.post(0), receiver.post(0), receiver.post(0)]
    for array in (first, second, first):
        sender.send(0, array)
    receiver.check(dues[0], 0, first.copy())
    receiver.check(dues[1], 0, second.copy())
    with pytest.raises(SilentCorruptionError, match="message of the pipeline from rank 0 to rank 0 is not what was"):
        receiver.check(dues[2], 0, np.nextafter(first, 9.0))
    sender.finish()
    lost = SingleSeals(MPI.COMM_SELF, 7, "message")
    due = lost.post(0)
    sender.send(0, first)  # its fourth, where the first is due
    with pytest.raises(SilentCorruptionError, match=r"4 of rank 0 .* 1 was due"):
        lost.check(due, 0, first)


@pytest.mark.nightly
def test_a_changed_message_of_a_pipeline_names_sender_and_receiver() -> None:
    rows = list(rows_of("injecting", "message", 2, "5", ["message:pipeline"]))
    assert [(row["case"], row["problem"]) for row in rows] == [("message in pipeline", "")], "one rank tells"


@pytest.mark.nightly
@pytest.mark.parametrize("app", [*CASES, "pipeline"])
def test_changed_messages_of_every_app(app: str) -> None:
    for seed in "12":
        rows = list(rows_of("injecting", "message", 2, seed, [f"message:{app}"]))
        assert [(row["case"], row["problem"]) for row in rows if not row["passed"]] == []


@pytest.mark.nightly
def test_every_safeguard_of_jobs_is_tested() -> None:
    from tests.faults.mutants import NOTICED_BY

    assert set(NOTICED_BY) == set(SAFEGUARDS)
    for name, (program, ranks, case) in NOTICED_BY.items():
        assert any(not row["passed"] for row in rows_of(program, case, ranks, "1", [case], without=name)), name
