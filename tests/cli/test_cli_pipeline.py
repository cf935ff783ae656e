"""`hpckit plan pipeline`: tables, JSON, drawings, programs, tables of one's own, and wrong input."""

from __future__ import annotations

import json

import pytest

from hpckit.cli.main import main

PIPELINE = ["plan", "pipeline"]


def test_all_schedules_are_compared(capsys):
    assert main([*PIPELINE, "--stages", "4", "--microbatches", "16"]) == 0
    out = capsys.readouterr().out
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.strip()}
    assert rows["zb_h1"][:8] == ["1", "51", "5.88", "5.88", "51", "5.88", "4", "96"]
    assert rows["zb_h2"][:7] == ["1", "51", "5.88", "5.88", "48", "0.00", "7"]
    assert rows["interleaved"][:4] == ["2", "52.5", "8.57", "8.57"]
    assert "not possible" not in out
    assert main([*PIPELINE, "--microbatches", "7"]) == 0
    assert "not possible: interleaved: interleaved 1F1B on 4 ranks takes a multiple of 4" in capsys.readouterr().out


def test_json_has_everything(capsys):
    assert main([*PIPELINE, "--schedule", "zb_h1", "--schedule", "ZB-V", "--microbatches", "8", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["stages"], said["microbatches"], said["unit"], said["machine"]) == (4, 8, "F", None)
    v, h1 = said["schedules"]
    assert (h1["schedule"], h1["bubble"], h1["theory"], h1["live"]) == ("zb_h1", 3 / 27, 3 / 27, [4, 4, 4, 4])
    assert (v["schedule"], v["chunks"], v["open_bubble"], v["live"]) == ("zb_v", 2, 0, [4, 4, 4, 4])


def test_a_machine_makes_it_longer(capsys):
    times = []
    nvlink = ["--machine", "nvlink", "--bytes", "64MiB"]
    for machine in (["--times", "1,1,1"], nvlink, [*nvlink, "--stride", "8"]):
        assert main([*PIPELINE, "--schedule", "1f1b", "--json", *machine]) == 0
        said = json.loads(capsys.readouterr().out)
        times.append(said["schedules"][0]["time"])
        assert said["unit"] == "s"
    assert times[0] == pytest.approx(57e-3, rel=1e-9)
    assert times[0] < times[1] < times[2]


def test_layers_are_dealt(capsys, tmp_path):
    path = tmp_path / "layers.csv"
    path.write_text("embedding,0.2,0,0.4\n" + "".join(f"block{i},1,1,1\n" for i in range(4)) + "head,1,1,1\n")
    assert main([*PIPELINE, "--stages", "3", "--microbatches", "6", "--layers", str(path), "--tied", "0.5"]) == 0
    out = capsys.readouterr().out
    assert "stage 0: embedding to block0 (2), 4.1 ms" in out
    assert "stage 1: block1 to block2 (2), 6 ms" in out
    assert "stage 2: block3 to head (2), 6.5 ms" in out
    assert main([*PIPELINE, "--stages", "4", "--layers", str(path)]) == 0
    assert "not possible: zb_v: 6 layers cannot be dealt to 8 stages" in capsys.readouterr().out
    assert main([*PIPELINE, "--stages", "7", "--layers", str(path)]) == 2
    assert "take 1 to 6 stages" in capsys.readouterr().err


def test_drawings_programs_and_tables(capsys, tmp_path):
    small = ["--stages", "2", "--microbatches", "2", "--schedule", "zb_h1"]
    assert main([*PIPELINE, *small, "--draw"]) == 0
    assert "rank 1  ...F0 I0 F1 I1 W0 W1" in capsys.readouterr().out
    assert main([*PIPELINE, *small]) == 0
    drawn, priced = capsys.readouterr().out.split("\n\n", 1)
    assert drawn.endswith("rank 1  ...F0 I0 F1 I1 W0 W1")
    assert " zb_h1 " in priced
    assert main([*PIPELINE, "--schedule", "1f1b", "--stages", "65"]) == 0  # too many to draw, not to price
    assert "rank 0" not in capsys.readouterr().out
    target, table = tmp_path / "gantt.svg", tmp_path / "own.csv"
    assert main([*PIPELINE, *small, "--draw", str(target), "--save", str(table)]) == 0
    assert target.read_text().startswith("<svg")
    capsys.readouterr()
    assert main([*PIPELINE, *small, "--program"]) == 0
    assert "rank 0: 0F0 0SEND_F0>1" in capsys.readouterr().out
    assert main([*PIPELINE, "--schedule", str(table), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["schedules"]
    assert (row["schedule"], row["bubble"], row["theory"]) == ("own.csv", 1 / 7, None)
    table.write_text(table.read_text().replace("1W1", ""))
    assert main([*PIPELINE, "--schedule", str(table)]) == 2
    assert "stage 1 never does W of microbatch 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--schedule", "zbh3"], "did you mean 'zb_h"),
        (["--stages", "0"], "give 1 stage or more"),
        (["--microbatches", "-3"], "give 1 microbatch or more"),
        (["--schedule", "interleaved", "--microbatches", "10"], "take 8 or 12 microbatches"),
        (["--schedule", "gpipe", "--chunks", "2"], "takes no option chunks"),
        (["--times", "1,2"], "write F,I,W in ms"),
        (["--times", "1,2,-1"], "the time of W is -0.001"),
        (["--tied", "1"], "give --layers"),
        (["--tied", "nan"], "--tied nan is not a time"),
        (["--stages", "99999999"], "99999999 ranks and 16 microbatches is too large"),
        (["--stages", "9999", "--microbatches", "1", "--schedule", "zb_v"], "is too large"),
        (["--machine", "nix"], "there is no machine 'nix'"),
        (["--stride", "0", "--machine", "nvlink"], "a stride of 0"),
        (["--stride", "2", "--bytes", "1KiB"], "--bytes and --stride without a machine"),
        (["--draw", "all.svg"], "one schedule goes into one picture"),
        (["--schedule", "none.csv"], "cannot be read"),
        (["--layers", "none.csv"], "cannot be read"),
    ],
)
def test_wrong_input_is_one_message(arguments, said, capsys):
    assert main([*PIPELINE, *arguments]) == 2
    assert said in capsys.readouterr().err
    assert main(["plan", "pipelin"]) == 2
    assert "hpckit plan pipeline" in capsys.readouterr().err
