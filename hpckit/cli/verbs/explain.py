"""`hpckit explain CODE`: what an error code or exit code means, what causes it, and what to do."""

from __future__ import annotations

from textwrap import fill

from hpckit.errors import EXIT_CODES, InputError, did_you_mean
from hpckit.settings.table import Parser

# Code -> (what it means, what causes it, what to do).
EXPLANATIONS = {
    "HPK-000": (
        "An error outside the cases that hpckit knows: an exception in an app, in user code or in hpckit itself.",
        "A fault in the program; a library that is too old or too new; a full disk or memory.",
        "Read the traceback in attempts/NNN/failure.json of the run directory; it names rank, host and step. The "
        "logs of the ranks are in attempts/NNN/ranks. `hpckit doctor` finds faults of the environment.",
    ),
    "HPK-200": (
        "Something that was given cannot be used: a run file, a setting, an option, a data file.",
        "An unknown key, a value of the wrong type or out of range, a file that is not there, TOML that does not "
        "parse.",
        "The message lists every mistake with file, line and key. `hpckit init APP` writes a run file with every "
        "key explained; `hpckit run FILE --show-config` prints where each value comes from.",
    ),
    "HPK-201": (
        "The grid cannot be cut over that many ranks, or not along those axes.",
        "A block would be thinner than its halo, or there are more ranks than cells along an axis.",
        "Take one of the rank counts that the message lists, or a larger grid. `hpckit run FILE -n RANKS --dry-run` "
        "prints the blocks without starting anything.",
    ),
    "HPK-202": (
        "A communication plan would not do what it must: a receive without its send, a deadlock, a wrong result.",
        "A plan written by hand or changed; a schedule with an action missing or in the wrong order.",
        "The message names rank, phase and message. `hpckit.prove(plan)` checks a plan without MPI.",
    ),
    "HPK-300": (
        "The machine lacks something that the job needs.",
        "No MPI library or launcher; a launcher of another MPI library than the one mpi4py loads, so that every "
        "rank is alone; a package of an extra that is not installed; a folder that cannot be written.",
        "`hpckit doctor` tests each part and prints one line to mend what fails. Without an MPI of the cluster's "
        "own: pip install 'hpckit[mpi]'. Under Slurm with the mpich wheel: srun --mpi=pmi2.",
    ),
    "HPK-301": (
        "Another process runs in the run directory.",
        "The run is still going, or was resumed twice. A job lost a moment ago may have ranks that are still ending.",
        "The message names the process, its host and since when. Wait for its end, or stop it: Ctrl-C there, or "
        "SIGTERM; then `hpckit resume DIR`. The lock is released by itself when the last process of the run is gone.",
    ),
    "HPK-400": (
        "The solution is no longer finite, or the time step breaks its CFL limit; the run stopped before writing it.",
        "A time step that is too long, a grid that is too coarse for a sharp gradient, or initial data that are not "
        "physical.",
        "The message names field, cell, rank and step. Take a smaller CFL number or time step, more diffusion, or "
        "look at the initial data there. Frames written before are good.",
    ),
    "HPK-500": (
        "A file that was complete is damaged: it does not parse, or its checksum does not match.",
        "A failing disk, a copy that was cut off, or a file that was edited.",
        "Checkpoints: `hpckit ckpt verify DIR` names the bytes, and a resumed run falls back to an older generation "
        "by itself. Else use an earlier copy, or run again: `hpckit run DIR/run.toml`.",
    ),
    "HPK-501": (
        "Data changed silently: a step computed twice from one state gave two results, or a message arrived altered. "
        "[checks] in the run file looks for it.",
        "A fault of a core, of memory, or of the network; rarely a kernel that reads memory it has not set.",
        "The message names rank, host, field and cell, or sender and receiver. Leave that host out, test its memory, "
        "and go on from the last checkpoint: `hpckit resume DIR`.",
    ),
    "HPK-600": (
        "Ranks wait in an operation for others that do not come.",
        "A branch that only some ranks take, a rank that raised and went on or ended early, an endless loop, a file "
        "system or library that does not answer.",
        "The message names the late rank, where in the source it is, the operation it is due in, and who waits "
        "where. Every run is watched: watch.warn and watch.abort are its limits, watch.off=true ends that; `--check` "
        "compares every operation before it is run.",
    ),
    "HPK-601": (
        "Ranks called different collective operations on one axis: another operation, dtype, number of elements or "
        "root. It would hang, or give wrong values.",
        "A branch, a loop count or a shape that depends on the rank.",
        "The message names each call with its line. All ranks of an axis call the same operations in the same order.",
    ),
    "HPK-700": (
        "A rank ended without an answer, and the launcher ended the others.",
        "The kernel or the batch system killed it (memory above all: exit by signal 9), a crash in compiled code "
        "(signal 11 or 6), os._exit in user code, or the user asked twice to stop.",
        "`hpckit run FILE -n RANKS --dry-run` prints the memory per rank. Look at attempts/NNN/launcher.log and "
        "ranks/, at dmesg for an out-of-memory kill, and at the job's state in the batch system.",
    ),
}


def main(arguments: list[str]) -> int:
    """The verb `explain`."""
    it = Parser(prog="hpckit explain", description="What an error code or exit code means.")
    it.add_argument("code", nargs="?", metavar="CODE", help="HPK-201, 201, or an exit code; left out: list them")
    options = it.parse_args(arguments)
    if options.code is None:
        _list()
        return 0
    if options.code.isdigit() and int(options.code) in EXIT_CODES:
        print(f"exit code {options.code}: {EXIT_CODES[int(options.code)]}")
        return 0
    code = options.code.upper() if options.code.upper().startswith("HPK-") else f"HPK-{options.code}"
    if code not in EXPLANATIONS:
        known = [*EXPLANATIONS, *map(str, EXIT_CODES)]
        raise InputError(
            f"no code {options.code!r}", likely=did_you_mean(code, EXPLANATIONS), do=f"codes: {', '.join(known)}"
        )
    meaning, causes, do = EXPLANATIONS[code]
    print(fill(f"{code}  {meaning}", 100))
    for name, text in (("causes", causes), ("do", do)):
        print(fill(text, 100, initial_indent=f"  {name + ':':8s}", subsequent_indent=" " * 10))
    return 0


def _list() -> None:
    """All codes, a line each."""
    for code, (meaning, _, _) in EXPLANATIONS.items():
        print(f"{code}  {meaning}")
    print("\nexit codes")
    for number, text in EXIT_CODES.items():
        print(f"{number:>7}  {text}")
