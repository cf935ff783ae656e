"""What a scaling study leaves: JSON, HDF5, tables for papers, a ReFrame test, pictures and a page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hpckit.bench.scaling.page import page_of, pictures
from hpckit.bench.scaling.reframe import reframe_test
from hpckit.comm.agree import plain

Record = Mapping[str, Any]
ESTIMATES = ("seconds", "speedup", "efficiency", "ceiling", "karp_flatt")
ABOUT = ("app", "title", "kind", "unit", "cores", "hosts")
COUNTS = ("steps", "rounds", "rounds_made", "rounds_disturbed", "disturbance")
CROWDED = "more ranks than cores"


def write_files(folder: Path, record: Record) -> None:
    """All files of a study into `folder`, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "scaling.json").write_text(json.dumps(plain(dict(record)), indent=1) + "\n", encoding="utf-8")
    write_hdf5(folder / "scaling.h5", record)
    (folder / "table.md").write_text(markdown(record), encoding="utf-8")
    (folder / "table.tex").write_text(latex(record), encoding="utf-8")
    (folder / "test_scaling_reframe.py").write_text(reframe_test(record), encoding="utf-8")
    drawn = pictures(record, folder)
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    rows = _table(record, "±")
    (folder / "index.html").write_text(page_of(record, drawn, names, list(_sentences(record)), rows), encoding="utf-8")


def write_hdf5(path: Path, record: Record) -> None:
    """Datasets over the measured numbers of ranks, `runs` with every single run, `model` over its own numbers of ranks;
    what it was measured on, by which command, as attributes in JSON.
    """
    points = record["points"]
    with h5py.File(path, "w") as file:
        for name in (*ABOUT, *COUNTS):
            file.attrs[name] = record[name]
        for name in ("settings", "machine", "provenance", "fit"):
            file.attrs[name] = json.dumps(plain(record[name]))
        file["ranks"] = [point["ranks"] for point in points]
        file["oversubscribed"] = [point["oversubscribed"] for point in points]
        file["work"] = [point["work"] for point in points]
        file["work"].attrs["units"] = record["unit"]
        for name in ESTIMATES:
            rows = [point.get(name) or {} for point in points]
            table = [[row.get(key, np.nan) for key in ("value", "low", "high")] for row in rows]
            _dataset(file, name, table, "s" if name == "seconds" else "1", "median, and ends of the 95 % interval")
        for name in dict.fromkeys(name for point in points for name in point["phases"]):
            rows = [point["phases"].get(name, {}) for point in points]
            table = [[row.get(key, 0.0) for key in ("mean", "least", "most")] for row in rows]
            _dataset(
                file, f"phases/{name.replace('/', ' ')}", table, "s", "mean, least and most of the ranks in a step"
            )
        runs = record["runs"]
        file["runs/kind"] = [str(run["kind"]) for run in runs]
        for name in ("ranks", "turn", "steps", "used"):
            file[f"runs/{name}"] = [run[name] for run in runs]
        waited = [run["waited"] for run in runs]
        _dataset(file, "runs/waited", waited, "1", "share of the turn that a rank waited for its core, at most")
        _dataset(file, "runs/seconds", [run["seconds"] for run in runs], "s", "a step, of the slowest rank")
        if record["model"]:
            for name in ("ranks", "compute", "communicate", "seconds", "low", "high"):
                file[f"model/{name}"] = [point[name] for point in record["model"]["points"]]
            for name in ("machine", "missed", "ends"):
                file["model"].attrs[name] = json.dumps(record["model"][name])


def _dataset(file: h5py.File, name: str, values: Any, units: str, columns: str) -> None:
    made = file.create_dataset(name, data=np.asarray(values, dtype=np.float64))
    made.attrs["units"], made.attrs["long_name"] = units, columns


def markdown(record: Record) -> str:
    """The table of a README."""
    head, rows = _table(record, "±")
    lines = [
        "| " + " | ".join(head) + " |",
        "|" + "---:|" * len(head),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]
    return "\n".join([*lines, "", *_sentences(record), ""])


def latex(record: Record) -> str:
    """The table of a paper, for the package booktabs."""
    head, rows = _table(record, r"$\pm$")
    lines = [
        "% \\usepackage{booktabs}",
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{_tex(' '.join(_sentences(record)))}}}",
        rf"  \begin{{tabular}}{{{'r' * len(head)}}}",
        r"    \toprule",
        "    " + " & ".join(_tex(text) for text in head) + r" \\",
        r"    \midrule",
        *("    " + " & ".join(_tex(text) for text in row) + r" \\" for row in rows),
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _tex(text: str) -> str:
    return "".join({"%": r"\%", "_": r"\_", "&": r"\&", "#": r"\#"}.get(sign, sign) for sign in text)


def _table(record: Record, sign: str) -> tuple[list[str], list[list[str]]]:
    points = record["points"]
    priced = {each["ranks"]: each["seconds"] for each in (record["model"] or {"points": []})["points"]}
    head = ["ranks", record["unit"], "ms/step", "speedup", "efficiency", "ceiling", "Karp-Flatt", "priced ms/step"]
    rows = []
    for point in points:
        mark = "*" if point["oversubscribed"] else ""
        rows.append(
            [
                f"{point['ranks']}{mark}",
                f"{point['work']:.0f}",
                _spread(point["seconds"], sign, 1e3),
                f"{point['speedup']['value']:.2f}",
                _spread(point["efficiency"], sign),
                f"{point['ceiling']['value']:.3f}" if "ceiling" in point else "",
                f"{point['karp_flatt']['value']:.4f}" if "karp_flatt" in point else "",
                f"{1e3 * priced[point['ranks']]:.4g}" if point["ranks"] in priced else "",
            ]
        )
    return head, rows


def _spread(estimate: Mapping[str, float], sign: str, scale: float = 1.0) -> str:
    """A value and half its interval, to the digits that the interval allows."""
    half = scale * (estimate["high"] - estimate["low"]) / 2
    value = scale * estimate["value"]
    digits = 3 if half <= 0 else int(np.clip(1 - np.floor(np.log10(half)), 0, 6))
    return f"{value:.{digits}f} {sign} {half:.{digits}f}" if half > 0 else f"{value:.{digits}f}"


def _sentences(record: Record) -> Iterator[str]:
    """What the table is of."""
    settings = f" with {', '.join(record['settings'])}" if record["settings"] else ""
    kind = "the same problem for each rank" if record["kind"] == "weak" else "the same problem on all ranks"
    yield (
        f"{record['title']}{settings}, {record['kind']} scaling ({kind}) on {record['machine']['cpu']}:"
        f" medians of {record['rounds']} interleaved rounds of {record['steps']} steps, ± half of the 95 % interval."
    )
    if record["rounds_made"] > record["rounds"]:
        yield (
            f"Of {record['rounds_made']} rounds these are the ones in which ranks waited least for cores that other"
            " programs had."
        )
    if record["rounds_disturbed"]:
        yield (
            f"In {record['rounds_disturbed']} of them a rank waited for its core, at most"
            f" {record['disturbance']:.0%} of a turn: other programs were computing, and take more of all cores than of"
            " one."
        )
    if record["fit"]:
        serial = record["fit"]["serial"]
        yield (
            f"{record['fit']['law']}'s law fits with a serial fraction of {serial['value']:.4f}"
            f" ({serial['low']:.4f} to {serial['high']:.4f})."
        )
        if not 0 <= serial["value"] <= 1:
            more = "more ranks take longer" if serial["value"] > 1 else "more ranks gain more than their number"
            yield f"That is not a fraction: {more}, which the law does not describe."
    if any("ceiling" in point for point in record["points"]):
        yield "Ceiling: what as many independent runs on one rank each, at the same time, leave of the speed of one."
    if record["model"]:
        model = record["model"]
        missed = f"measured points differ by up to {model['missed']:.1%} from their price"
        yield f"Priced on {model['machine']['name']}: {missed}."
        if model["machine"]["measured"]:
            yield "Beyond its cores every message is taken to be as quick as between two ranks of it."
        if model["ends"]:
            yield f"The model ends at {model['points'][-1]['ranks']} ranks: {model['ends']}."
    if any(point["oversubscribed"] for point in record["points"]):
        yield f"* oversubscribed: {CROWDED}; fits leave these out."
