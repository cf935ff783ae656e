"""The end of a run: its outcome, the place of its files, and its exit code."""

from __future__ import annotations

import contextlib
import re
import sys
from pathlib import Path
from typing import Any

from hpckit.apps.common.validation import VALIDATION
from hpckit.cli.nested import CASES
from hpckit.errors import BlowUpError, HpckitError, RankLostError, StallError, visible
from hpckit.io.files import utc_now
from hpckit.launch.failure import failure_file, stalls_folder
from hpckit.launch.mpiexec import JobEnd, no_start
from hpckit.plan.inputs.text import parse_json, read_bytes
from hpckit.report.units import counted
from hpckit.run.directory import RunDirectory
from hpckit.run.progress import clock_text
from hpckit.settings.schema import repr_toml
from hpckit.settings.table import print_table, rate_text, silence

CRASH = re.compile(r"signal (4|6|7|8|11)\b")


def end_of_run(directory: RunDirectory, end: JobEnd, *, report: bool) -> int:
    """Print how the run ended, build its report, and return its exit code, even if no process reads our output."""
    for stream in (sys.stdout, sys.stderr):
        try:
            return _end_of_run(directory, end, report)
        except BrokenPipeError:
            silence(stream)
    return _end_of_run(directory, end, report)


def _end_of_run(directory: RunDirectory, end: JobEnd, report: bool) -> int:
    if end.noise:
        directory.write_text(f"{directory.attempt_name}/launcher.log", "\n".join(end.noise) + "\n")
    _add_end(directory)
    summary = directory.read_json("summary.json")
    failure = directory.read_json(failure_file(directory))
    if failure is None and (summary is None or end.code):
        failure = _rank_lost(directory, end)
    if failure is not None and failure.get("by_peer") and (first := end.before(failure["rank"])):
        end.lost = first
        failure = _rank_lost(directory, end, failure)
    if failure is not None:
        code = _failed(directory, failure, summary)
        if report and code == BlowUpError.exit_code:  # the report shows how it came about
            build_report_of(directory)
        return code
    _print_phases(summary)
    for line in _headline(summary):
        print(visible(line))
    _print_checks(directory)
    if report:
        for picture in (directory.read_json(VALIDATION) or {}).get("pictures", []):
            build_report_of(RunDirectory(directory.path / CASES / picture["run"]), quiet=True)
        build_report_of(directory)
    if summary["status"] == "stopped":
        whole = "finished runs are complete" if (directory.path / CASES).exists() else "files complete"
        early = "stopped early"
        if "stopped_by" in summary:
            limit = directory.read_json("resolved.json")["values"]["time"]["limit"]
            early += f" by time.limit = {repr_toml(limit)}"
            print(f"every start runs so long; without a limit: hpckit resume {directory.path} time.limit=none")
        print(f"{early}, {whole}; to go on: hpckit resume {directory.path}")
    sys.stdout.flush()
    return int(summary["exit_code"])


def lost_rank(lost: dict[str, str]) -> str:
    """Which rank was lost, where and how, as far as it is known."""
    who = f"rank {lost['rank']}" if "rank" in lost else "a rank"
    where = f" on {lost['host']}" if "host" in lost else ""
    return f"{who}{where} ended without an answer{': ' + lost['how'] if 'how' in lost else ''}"


def likely(lost: dict[str, str]) -> str:
    """The likely cause of an end like this."""
    how = lost.get("how", "")
    if "signal 9" in how:
        return "killed from outside: out of memory (see `dmesg`), a limit of the batch system, or a person"
    if CRASH.search(how):
        return "a crash in compiled code; a line with `Fatal Python error` above shows the place"
    if how.startswith("exit code"):
        return "the program, or a library that it calls, ends the process by itself (os._exit, exit of C)"
    return "killed from outside (memory, batch system), or a crash in compiled code"


def _rank_lost(directory: RunDirectory, end: JobEnd, survivor: dict[str, Any] | None = None) -> dict[str, Any]:
    """The failure of a job that recorded none itself, or only that of a survivor whose peer was gone; kept in the run
    directory like any other.
    """
    progress = directory.read_json("progress.json") or {}
    error: HpckitError
    if end.stops > 1:
        error = RankLostError("the ranks were ended on request", do="complete files are still there")
    elif end.code and (stall := stall_that_ended(stalls_folder(directory))):
        error = StallError(
            stall, where="reported by the watch", do=f"look at the lines named; {stalls_folder(directory)}"
        )
    elif end.code and end.unstarted:
        error = no_start()
    else:
        step = f"near step {progress['step']}" if "step" in progress else "before the first step"
        error = RankLostError(
            lost_rank(end.lost),
            where=f"{step}; mpiexec ended with {end.code}",
            likely=likely(end.lost),
            do=f"look at {directory.attempt}; complete files are intact",
        )
    record = {
        "rank": int(end.lost["rank"]) if isinstance(error, RankLostError) and "rank" in end.lost else None,
        "host": end.lost.get("host"),
        "time": utc_now(),
        "kind": type(error).__name__,
        "error": error.to_dict(),
        "report": error.report(),
        "exit_code": error.exit_code,
        "launcher": end.noise,
    }
    if survivor is not None:
        directory.write_json(failure_file(directory), {**record, "survivor": survivor})
    else:
        directory.create_json(failure_file(directory), record)
    return record


def stall_that_ended(folder: Path) -> str:
    """The report, in the watch's folder, of the stall for which it ended the job; '' without one."""
    for path in sorted(folder.glob("node-*/stall.json")):
        with contextlib.suppress(HpckitError, ValueError):
            report = parse_json(read_bytes(path, "the report of the watch"))
            if isinstance(report, dict) and report.get("ended"):
                return str(report["text"])
    return ""


def _failed(directory: RunDirectory, failure: dict[str, Any], summary: dict[str, Any] | None) -> int:
    """Print the failure once, and note it in `summary.json`."""
    code = int(failure["exit_code"])
    resolved = directory.read_json("resolved.json") or {}
    known = summary or {name: resolved.get(name) for name in ("app", "title", "ranks")}
    directory.write_json("summary.json", {**known, "status": "failed", "exit_code": code, "error": failure["error"]})
    print(visible(str(failure["report"])), file=sys.stderr)
    print(f"failed with exit code {code}: {directory.path / failure_file(directory)}", file=sys.stderr, flush=True)
    return code


def _headline(summary: dict[str, Any]) -> list[str]:
    """One line with the work done and its speed."""
    parts = [f"{summary['status']}: {summary['app']}"]
    if summary.get("title") not in (None, summary["app"]):
        parts[0] += f" {summary['title']}"
    if "steps" in summary:
        parts.append(f"{summary['steps']} steps on {counted(summary['ranks'], 'rank')}")
    if "wall_seconds" in summary:
        seconds = summary["wall_seconds"]
        parts.append(f"{clock_text(seconds) if seconds >= 1 else f'{seconds:.2g} s'} in the time loop")
    if summary.get("cell_steps_per_second"):
        parts.append(rate_text(summary["cell_steps_per_second"], "cell-steps/s"))
    if summary.get("t_eff"):
        parts.append(f"t_eff {summary['t_eff']:.3g} GB/s")
    return [", ".join(parts)]


def _print_phases(summary: dict[str, Any]) -> None:
    """Print the time per phase over ranks, and what they waited for."""
    from hpckit.report.numbers import phases, waits
    from hpckit.report.sections.sections import phase_texts, waits_text

    rows = phases(summary)
    if rows:
        columns = ("phase", "min (s)", "mean (s)", "max (s)", "imbalance", "share")
        print_table(columns, [(name, *phase_texts(row)) for name, row in rows.items()])
    text = waits_text(waits(summary))
    if text:
        print(text)


def _print_checks(directory: RunDirectory) -> None:
    """Print the results of a validation: how many are in range, and each that is not."""
    record = directory.read_json(VALIDATION)
    if record is None:
        return
    columns = ("case", "number", "ours", "should be", "unit", "source", "")
    rows = [
        (
            check["case"],
            check["quantity"],
            "not finite" if check["ours"] is None else f"{check['ours']:.6g}",
            check["allowed"],
            check["unit"],
            check["source"],
            "pass" if check["passed"] else "MISS",
        )
        for check in record["checks"]
    ]
    print_table(columns, rows)
    missed = [row for row in rows if row[-1] == "MISS"]
    print(f"{len(rows) - len(missed)} of {len(rows)} numbers are what they should be")
    for case, quantity, ours, allowed, *_ in missed:
        print(f"missed: {case}, {quantity}: {ours}, should be {allowed}")


def build_report_of(directory: RunDirectory, quiet: bool = False) -> None:
    """Build the report; a failure to do so does not change the run's exit code."""
    from hpckit.cli.verbs.report import build

    try:
        path = build(directory)
        if not quiet:
            print(f"report: {path}")
    except HpckitError as error:
        print(f"no report: {error.message}" + (f" ({error.do})" if error.do else ""), file=sys.stderr)
    except BrokenPipeError:  # the report is written; its reader has gone
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        print(f"no report: {said}; the run's files are in {directory.path}", file=sys.stderr)


def _add_end(directory: RunDirectory) -> None:
    """The end of the run, in `provenance.json`."""
    record = directory.read_json("provenance.json") or {}
    directory.write_json("provenance.json", {**record, "ended": utc_now()})
