"""`hpckit plan halo`: the table, the choice of a mesh, JSON, drawings, proofs and wrong input."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree

import pytest

from hpckit.cli.main import main
from hpckit.cli.verbs.plan import halo as plan_halo
from hpckit.cli.verbs.plan import options as plan_options
from hpckit.errors import PlanError
from hpckit.plan.drawing import draw
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.grid.draw import held_from
from hpckit.plan.grid.halo import halo_plan
from hpckit.plan.topology import Topology

HALO = ["plan", "halo"]


def told(capsys, *options):
    assert main([*HALO, *options, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_split_by_hand(capsys):
    """2 layers of 5 fields of 8 bytes: an inner one of 8 x 8 ranks sends 2 x (2 x 260) and 2 x (516 x 2) cells."""
    said = told(capsys, "--shape", "4096x2048", "--split", "y=8,x=8", "--halo", "2", "--fields", "5")
    assert (said["ranks"], said["halo"], said["axes"]) == (64, [2, 2], ["y", "x"])
    (row,) = said["splits"]
    assert (row["split"], row["block"], row["chosen"]) == ({"y": 8, "x": 8}, [512, 256], True)
    assert (row["messages"], row["sent_bytes"]) == (4, 40 * (2 * 520 + 2 * 1032))
    assert row["imbalance"] == 0.0


def test_the_price_by_hand_and_the_order(capsys, tmp_path):
    path = tmp_path / "flat.toml"
    path.write_text(
        'name = "flat"\noverhead = 1e-6\nreduction = 1e9\n[[level]]\nname = "all"\nranks = 0\nlatency = 2e-6\n'
        "bandwidth = 5e9\n"
    )
    rows = told(capsys, "--shape", "24x48", "--ranks", "12", "--periodic", "y,x", "--machine", str(path))["splits"]
    assert [row["seconds"] for row in rows] == sorted(row["seconds"] for row in rows)
    assert len(rows) == 6
    for row in rows:
        (y, x), expected = row["split"].values(), 0.0
        for parts, slab in ((y, 48 // x + 2), (x, 24 // y + 2)):
            # A whole dim is copied within the rank, not sent.
            expected += 2 * (1e-6 + 8 * slab / 5e9) + 3e-6 if parts > 1 else 2 * 8 * slab / 1e9
        assert row["seconds"] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("machine", ["ethernet", "infiniband", "nvlink"])
@pytest.mark.parametrize(
    ("shape", "ranks", "halo", "periodic"),
    [((211, 97), 30, (2, 3), "x"), ((61, 67, 71), 48, (0, 3, 3), ""), ((1009,), 7, (1,), "x")],
)
def test_the_split_marked_is_that_of_a_mesh(capsys, shape, ranks, halo, periodic, machine):
    names = "zyx"[-len(shape) :]
    said = told(
        capsys, "--shape", "x".join(map(str, shape)), "--ranks", str(ranks), "--halo", ",".join(map(str, halo)),
        "--periodic", periodic, "--machine", machine,
    )  # fmt: skip
    (chosen,) = [row["split"] for row in said["splits"] if row["chosen"]]
    mesh = Topology.over(ranks, shape, dict.fromkeys(names, 0), tuple(periodic), halo)
    assert chosen == dict(zip(mesh.names, mesh.sizes, strict=True))


def test_the_table_is_short_has_the_choice_and_says_what_it_left_out(capsys, monkeypatch):
    options = ["--shape", "997x1009x61", "--ranks", "48", "--halo", "2", "--machine", "ethernet"]
    assert main([*HALO, *options]) == 0
    out = capsys.readouterr().out
    lines = [line for line in out.splitlines() if line.lstrip().startswith("z=")]
    assert plan_halo.ROWS <= len(lines) <= plan_halo.ROWS + 1
    assert sum(" *" in line for line in lines) == 1
    every = told(capsys, *options)["splits"]
    assert f"{len(every) - len(lines)} more ways to split it" in out
    assert "not priced" not in out
    monkeypatch.setattr(plan_halo, "MOST_MESSAGES", 48 * 6 * 3)
    few = told(capsys, *options)["splits"]
    priced = [row["seconds"] is not None for row in few]
    assert priced == sorted(priced, reverse=True)
    assert sum(priced) == 3
    assert any(row["chosen"] for row in few if row["seconds"])


def test_every_plan_of_the_table_is_proved(capsys, monkeypatch):
    assert main([*HALO, "--shape", "509x1021", "--ranks", "1024", "--halo", "2,6", "--periodic", "y", "--prove"]) == 0
    proofs = [line for line in capsys.readouterr().out.splitlines() if line.startswith("proved: y=")]
    assert len(proofs) >= 5
    assert all("1024 ranks, 2 phases" in line for line in proofs)

    def refuse(plan):
        raise PlanError("rank 3 ends with nothing in the local cell (0, 0)")

    monkeypatch.setattr(plan_options, "prove", refuse)
    assert main([*HALO, "--shape", "40x30", "--ranks", "4", "--prove"]) == 2
    assert "HPK-202" in capsys.readouterr().err


def test_the_text_says_who_sends_what_to_whom(capsys):
    assert main([*HALO, "--shape", "9x8", "--split", "y=1,x=3", "--halo", "1,2", "--periodic", "x", "--draw"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "halo exchange of (9, 8) cells on 3 ranks, 2 phases"
    # Blocks of 3, 3 and 2 columns; y has walls and is whole: nothing moves, and there is no step.
    assert [line.split() for line in lines[2:]] == [
        ["1", "x", "low", "11x2>2", "11x2>0", "11x2>1"],
        ["2", "x", "high", "11x2>1", "11x2>2", "11x2>0"],
    ]


def test_halos_are_in_the_color_of_their_owners():
    dec = Decomposition((9, 8), Topology(("y", "x"), (3, 2), ("x",)), (1, 1))
    held = held_from(halo_plan(dec))
    for rank, owners in enumerate(held):
        n_y, n_x = dec.owned(rank)
        for (y, x), owner in owners.items():
            point = dec.to_global(rank, ((0, 1, 1 + n_y)[1 + y], (0, 1, 1 + n_x)[1 + x]))
            inside = all(0 <= i < n for i, n in zip(point, dec.shape, strict=True))
            assert owner == (dec.owner(point) if inside else -1)


@pytest.mark.parametrize(
    ("shape", "split", "periodic"),
    [
        ((100,), (5,), ()),
        ((40, 30), (3, 2), ("x",)),
        ((7, 11, 13), (2, 1, 3), ("z", "y")),
        ((4, 4, 4, 4), (2, 1, 1, 2), ("t",)),
    ],
)
def test_the_picture_has_each_block_and_each_message(capsys, tmp_path, shape, split, periodic):
    target, topology = tmp_path / "halo.svg", Topology(tuple("tzyx"[-len(shape) :]), split, periodic)
    sizes = ",".join(f"{name}={size}" for name, size in zip(topology.names, split, strict=True))
    options = ["--shape", "x".join(map(str, shape)), "--split", sizes, "--periodic", ",".join(periodic)]
    assert main([*HALO, *options, "--draw", str(target)]) == 0
    assert "drawn in" in capsys.readouterr().out
    root = ElementTree.fromstring(target.read_text(encoding="utf-8"))
    titles = [title.text for title in root.iter("{http://www.w3.org/2000/svg}title")]
    for rank in range(topology.size):
        assert sum(text.startswith(f"rank {rank}: ") for text in titles) == 1
    sent = sum(int((topology.all_shifted(name, n) >= 0).sum()) for name in topology.names for n in (-1, 1))
    assert sum(text.startswith("step ") for text in titles) == 2 * sent  # a bar at either end


def test_what_is_too_large_to_draw_is_refused(capsys):
    assert main([*HALO, "--shape", "100x100", "--ranks", "65", "--draw"]) == 2
    assert "too large to draw" in capsys.readouterr().err


def test_drawings_of_halo_plans_name_boxes():
    plan = halo_plan(Decomposition((10, 8), Topology(("y", "x"), (1, 2)), halo=(0, 1)))
    assert draw(plan).splitlines()[-1].split() == ["2", "x", "high", "10x1>1", "."]


def test_all_mistakes_are_one_message(capsys):
    wrong = ["--shape", "4x-3", "--ranks", "0", "--halo", "a", "--fields", "1.5", "--dtype", "q9"]
    assert main([*HALO, *wrong, "--periodic", "q", "--split", "w=2", "--machine", "nix"]) == 2
    error = capsys.readouterr().err
    for part in ("'-3'", "--ranks '0'", "'a'", "'1.5'", "'q9'", "called 'q'", "called 'w'", "machine 'nix'"):
        assert part in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "--shape is missing"),
        (["--shape", "2x2x2x2x2"], "has 5 dims"),
        (["--shape", "12x12", "--ranks", "64", "--halo", "4"], "ranks that fit this grid"),
        (["--shape", "12x3", "--ranks", "2", "--halo", "4"], "the halo needs 4"),
        (["--shape", "12x12", "--ranks", "7", "--split", "y=2,x=2"], "7 ranks cannot be 2 x 2"),
        (["--shape", "12x12", "--ranks", "7", "--split", "y=2"], "7 ranks cannot be 2"),
        (["--shape", "12x12", "--split", "y=2,y=3"], "names an axis twice"),
        (["--shape", "12x12", "--split", "y"], "--split y ="),
        (["--shape", "12x12", "--halo", "1,2,3"], "has 3 widths"),
        (["--shape", "12x12", "--dtype", "U3"], "not a number type"),
        (["--shape", "12x12", "--ranks", "9999999"], "at most 1048576"),
        (["--shape", "12x12", "--ranks", "4", "--draw", "/nonexistent/a.svg"], "there is no such folder"),
    ],
)
def test_wrong_input_says_what_would_do(options, said, capsys):
    assert main([*HALO, *options]) == (3 if "folder" in said else 2)
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error
