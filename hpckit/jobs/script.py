"""Job scripts for Slurm: one function from a job and a site to the text of a shell script.

Every text of a user stands in the script as one quoted word (`shlex.quote`) or, on an #SBATCH line, has harmless
characters only; line breaks are refused. This function makes the scripts in jobscripts/.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hpckit.errors import EXIT_STOPPED, InputError, Mistakes, SetupError
from hpckit.jobs.site import Site, one_line

EXIT_ENVIRONMENT = SetupError.exit_code
STARTS = 3  # tries until MPI starts
_TIME = re.compile(r"(?:(\d+)-)?(\d{1,4})(?::(\d{1,2}))?(?::(\d{1,2}))?")
_OUTPUT = re.compile(r"[\w./@+=,:% -]+")
_NAMED = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})")  # $NAME and ${NAME}
_DEPENDENCY = re.compile(r"(after|afterany|afterok|afternotok|aftercorr):\d+(:\d+)*|\d+(:\d+)*")


class _Variable(str):
    """A word of a command that is a variable of the script, never a user's text."""


RUN = _Variable('"$run"')  # the run directory
SETTINGS = _Variable('"${settings[@]}"')  # the settings of the array task


@dataclass(frozen=True)
class Job:
    """A batch job: its work and its resources.

    `start` is the command that begins the work, `resume` the one that continues it after a requeue (None if there is
    none); `RUN` and `SETTINGS` in them stand for the run directory and for the settings of the array task. `runs` holds
    the run directory, or one for each task of an array; if it is empty, they are named by the job's number below
    `runs/`. `array` holds the settings of each task. A `serial` command is started once (it
    starts ranks itself), any other on all ranks. `output` is Slurm's pattern for the file of all output.
    """

    name: str
    nodes: int
    time: str
    start: Sequence[str]
    resume: Sequence[str] | None = None
    runs: Sequence[str] = ()
    ranks_per_node: int = 1
    gpu: bool = False
    serial: bool = False
    array: Sequence[Sequence[str]] = ()
    array_limit: int = 0
    after: str = ""
    output: str = "slurm-%x-%j.out"
    about: str = ""


def job_script(job: Job, site: Site) -> str:
    """The script of `job` at `site` for `sbatch`; shellcheck finds no fault in it.

    Raises `InputError` for texts that a script cannot hold, and for contradictions.
    """
    _check(job, site)
    parts = [
        ["#!/bin/bash", *(f"# {line}" for line in _comment(job))],
        [f"#SBATCH {option}" for option in directives(job, site)],
        _environment(job, site),
        _run_directory(job),
        _nodes(),
        _kernel_cache(site),
        _launch(job, site),
        _work(job, site),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def seconds(text: str) -> int:
    """A time limit as Slurm takes it (minutes, MM:SS, HH:MM:SS, D-HH:MM:SS) in seconds; raises `InputError`."""
    found = _TIME.fullmatch(text)
    if not found:
        raise InputError(f"{text!r} is not a time limit", do="minutes, HH:MM:SS or D-HH:MM:SS, as --time of sbatch")
    days, first, second, third = (int(part) if part else None for part in found.groups())
    if days is not None:
        hours, minutes, rest = first or 0, second or 0, third or 0
    elif third is not None:
        hours, minutes, rest = first or 0, second or 0, third
    elif second is not None:
        hours, minutes, rest = 0, first or 0, second
    else:
        hours, minutes, rest = 0, first or 0, 0
    total = (((days or 0) * 24 + hours) * 60 + minutes) * 60 + rest
    if not total:
        raise InputError(f"the time limit {text!r} is not a positive time", do="--time 01:00:00")
    return total


def directives(job: Job, site: Site) -> list[str]:
    """The options of sbatch, in the order in which they stand in the script."""
    place = site.gpu if job.gpu else site.cpu
    options = [
        f"--job-name={job.name}",
        f"--nodes={job.nodes}",
        f"--ntasks-per-node={job.ranks_per_node}",
        f"--cpus-per-task={site.gpu.cores_per_gpu if job.gpu else 1}",
        f"--time={job.time}",
    ]
    options += [
        f"--{name}={value}"
        for name, value in (("partition", place.partition), ("account", site.account), ("qos", site.qos))
        if value
    ]
    if job.gpu:
        count = f"{site.gpu.kind + ':' if site.gpu.kind else ''}{site.gpu.gpus_per_node}"
        options.append(f"--gres=gpu:{count}" if site.gpu.request == "gres" else f"--gpus-per-node={count}")
    if job.array:
        options.append(f"--array=0-{len(job.array) - 1}{f'%{job.array_limit}' if job.array_limit else ''}")
    if job.after:
        options.append(
            f"--dependency={job.after if ':' in job.after and job.after[0] == 'a' else f'afterok:{job.after}'}"
        )
    options.append(f"--output={_quoted(job.output)}")
    options.append("--open-mode=append")
    if job.resume is not None:
        if site.requeue:
            options.append("--requeue")
        # To the batch shell, which asks the run to stop with a file: that reaches the ranks under every launcher.
        options.append(f"--signal=B:USR1@{site.signal_seconds}")
    return [*options, *place.options]


def _check(job: Job, site: Site) -> None:
    """Raise `InputError` with everything that is wrong with a job."""
    tried = Mistakes()
    try:
        for text in (
            *job.start,
            *(job.resume or ()),
            *job.runs,
            *(word for task in job.array for word in task),
            job.about,
        ):
            one_line(text)
    except ValueError as error:
        tried.found.append(InputError(str(error), where=f"the job {job.name!r}"))
    limit = tried(lambda: seconds(job.time))
    tried.found += _faults(job, site, limit)
    tried.tell()


def _faults(job: Job, site: Site, limit: int | None) -> Iterator[InputError]:
    """What of a job cannot be; limit: its time, s."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", job.name):
        yield InputError(f"{job.name!r} is not a job name", do="letters, digits, dots, dashes")
    if not _OUTPUT.fullmatch(job.output):
        yield InputError(
            f"the output file {job.output!r} has characters that are special to Slurm or a shell",
            do="give a folder whose path has letters, digits, blanks and . / _ - + = , : @ only",
        )
    if job.after and not _DEPENDENCY.fullmatch(job.after):
        yield InputError(f"{job.after!r} names no jobs to wait for", do="--after 1234, or --after afterany:1234:1235")
    for name, value in (("nodes", job.nodes), ("ranks per node", job.ranks_per_node)):
        if value < 1:
            yield InputError(f"{value} {name}", do="give 1 or more")
    if job.resume is not None and limit is not None and limit <= site.signal_seconds:
        yield InputError(
            f"a time limit of {limit} s leaves no time before the checkpoint, requested {site.signal_seconds} s "
            "before its end",
            do="a longer --time, or a smaller signal_seconds in the site file",
        )
    if job.gpu and not site.gpu.gpus_per_node:
        yield InputError("the site file does not say how many GPUs a node has", do="[gpu] gpus_per_node = 4")


def _comment(job: Job) -> list[str]:
    """A comment for readers of the script."""
    nodes, ranks = (
        f"{n} {what}{'s' if n > 1 else ''}" for n, what in ((job.nodes, "node"), (job.ranks_per_node, "rank"))
    )
    where = f"{nodes}, {ranks} on each"
    if job.gpu:
        where += ", one for each GPU"
    lines = [f"{job.about or job.name}: {where}."]
    lines.append("Made by hpckit submit; `sbatch FILE` submits it as it stands.")
    return lines


def _environment(job: Job, site: Site) -> list[str]:
    """Modules, virtual environment, variables; threads within the cores of each rank."""
    lines = ["set -o pipefail"]
    if job.resume is not None:
        lines.append("limit=")
        lines.append("trap 'limit=yes' USR1  # under a short limit Slurm warns before the run can be asked to stop")
    if site.environment.modules:
        lines.append("module purge")
        lines += [f"module load {shlex.quote(name)} || exit {EXIT_ENVIRONMENT}" for name in site.environment.modules]
    if site.environment.venv:
        venv = _with_variables(_home(site.environment.venv.rstrip("/")) + "/bin/activate")
        lines += ["# shellcheck source=/dev/null", f"source {venv} || exit {EXIT_ENVIRONMENT}"]
    lines += [f'export {name}="${{SLURM_CPUS_PER_TASK:-1}}"' for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS")]
    lines += [f"export {name}={_with_variables(value)}" for name, value in site.environment.variables.items()]
    return lines


def _run_directory(job: Job) -> list[str]:
    """The run directory of this job, or of this task of an array, and the settings of the task."""
    if RUN not in job.start:
        return []
    lines = []
    if job.array:
        lines.append('case "$SLURM_ARRAY_TASK_ID" in')
        for task, settings in enumerate(job.array):
            run = f" run={shlex.quote(job.runs[task])}" if job.runs else ""
            # An existing run directory holds its settings.
            lines.append(f"{task}){run or f' settings=({shlex.join(settings)})'} ;;")
        lines.append("esac")
    elif job.runs:
        lines.append(f"run={shlex.quote(job.runs[0])}")
    if not job.runs:
        number = "$SLURM_ARRAY_JOB_ID-$SLURM_ARRAY_TASK_ID" if job.array else "$SLURM_JOB_ID"
        lines.append(f'run="$SLURM_SUBMIT_DIR/runs/{job.name}-{number}"')
    return lines


def _nodes() -> list[str]:
    """A command on each node, and the removal of what an earlier start of the job left in their memory."""
    return [
        "on_each_node() {",
        '    srun --mpi=none --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 "$@"',
        "}",
        "# A start that was killed leaves segments of MPI in memory, and a step of the same number takes them for its",
        "# own. Those of this user that no process maps are removed.",
        "clean_memory() {",
        "    on_each_node bash -s <<'CLEAN'",
        'find /dev/shm -maxdepth 1 -type f -user "$UID" -not -newermt "-2 seconds" \\',
        '    \\( -name "mpich_shm_*" -o -name "*_segment.*" \\) |',
        "    while read -r file; do",
        '        grep -qsF "$file" /proc/[0-9]*/maps || rm -f "$file"',
        "    done",
        "CLEAN",
        "}",
        '[ "${SLURM_RESTART_COUNT:-0}" -eq 0 ] || clean_memory',
    ]


def _kernel_cache(site: Site) -> list[str]:
    """Compiled kernels on each node's own disk: one task per node unpacks them, and repacks new ones."""
    if not site.scratch.node_local:
        return ["keep_cache() { :; }"]
    local = _with_variables(_home(site.scratch.node_local).rstrip("/") or "/")
    return [
        "# Compiled kernels live on a disk of each node, which one task per node fills with those of earlier jobs. One",
        "# rank per node compiles missing ones while the others wait; one file keeps them for later jobs.",
        'store="${XDG_CACHE_HOME:-$HOME/.cache}/hpckit/kernels.tar"',
        f'export NUMBA_CACHE_DIR={local}/"hpckit-$UID-$SLURM_JOB_ID"',
        "on_each_node bash -s -- \"$store\" <<'FILL' || unset NUMBA_CACHE_DIR",
        "umask 077",
        'mkdir "$NUMBA_CACHE_DIR" 2>/dev/null ||',
        '    { [ -O "$NUMBA_CACHE_DIR" ] && [ ! -L "$NUMBA_CACHE_DIR" ]; } || exit 1  # our own folder, not a link',
        '[ ! -f "$1" ] || tar -xmf "$1" -C "$NUMBA_CACHE_DIR" || true',
        "FILL",
        "mark=$(mktemp)",
        "keep_cache() {",
        '    [ -n "$NUMBA_CACHE_DIR" ] || return',
        '    local new="$store.$SLURM_JOB_ID.$$"',
        '    if [ -n "$(find "$NUMBA_CACHE_DIR" -name "*.nbc" -newer "$mark" -print -quit)" ]; then',
        '        mkdir -p "${store%/*}" && tar -cf "$new" -C "$NUMBA_CACHE_DIR" . && mv "$new" "$store"',
        "    fi",
        '    rm -f "$new" "$mark"',
        '    on_each_node rm -rf "$NUMBA_CACHE_DIR"',
        "}",
    ]


def _launch(job: Job, site: Site) -> list[str]:
    """The function that starts a command on all ranks."""
    if job.serial:
        return []
    if site.mpi.launcher == "mpiexec":
        words = ["mpiexec", *map(shlex.quote, site.mpi.options), "-n", '"$SLURM_NTASKS"']
    else:
        words = ["srun", shlex.quote(f"--mpi={site.mpi.pmi}") if site.mpi.pmi else "", "--kill-on-bad-exit=1"]
        words += ['--cpus-per-task="$SLURM_CPUS_PER_TASK"', "--cpu-bind=cores"]
        if job.gpu and site.gpu.bind:
            words.append(shlex.quote(f"--gpu-bind={site.gpu.bind}"))
        words += map(shlex.quote, site.mpi.options)
    return ["launch() {", f'    {" ".join(filter(None, words))} "$@"', "}"]


def _work(job: Job, site: Site) -> list[str]:
    """Start or resume, forward the time limit's warning, and requeue the job if work remains."""
    launch = "" if job.serial else "launch "
    start = launch + _words(job.start)
    if job.resume is None:
        return [start, "code=$?", *_END]
    begin = [
        'checkpoint() { cat "$run/ckpt/LATEST" 2>/dev/null; }',
        'holder() { cat "$run/lock" 2>/dev/null; }  # the ranks write it as soon as MPI has started',
        'if [ -n "$(checkpoint)" ] || { [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] && [ -e "$run/resolved.json" ]; }; then',
        f"    command=({_words(job.resume)})",
        "else",
        f"    command=({_words(job.start)})",
        "fi",
        *(_requeue(job) if site.requeue else ()),
        "",
        "# Slurm's warning of the time limit becomes a request to stop: a file that rank 0 checks for.",
        "trap 'limit=yes signaled=yes; touch \"$run/stop\"' USR1",
        f"for try in $(seq {STARTS}); do",
        "    held=$(holder)",
        f'    {launch}"${{command[@]}}" &',
        "    code=",
        '    while [ -z "$code" ]; do',
        "        signaled=",
        "        wait $!",
        "        code=$?",
        '        [ -z "$signaled" ] || code=  # the signal ended the waiting, not the run',
        "    done",
        f'    case "$code" in 0 | {InputError.exit_code} | {EXIT_ENVIRONMENT} | {EXIT_STOPPED}) break ;; esac',
        f'    if [ "$try" = {STARTS} ] || [ -n "$limit" ] || [ "$(holder)" != "$held" ]; then break; fi',
        '    echo "the ranks did not start (exit code $code); once more" >&2',
        "    clean_memory",
        "done",
        '[ -z "$limit" ] || rm -f "$run/stop"',
    ]
    if not site.requeue:
        said = "stopped early; go on with:  hpckit submit $run --time ..."
        return [*begin, f'[ "$code" -ne {EXIT_STOPPED} ] || echo "{said}"', *_END]
    return [
        *begin,
        "keep_cache",
        "",
        f"# {EXIT_STOPPED}: stopped early with a checkpoint. A run that its user stopped, by the file, stays stopped.",
        f'[ "$code" -ne {EXIT_STOPPED} ] || over=yes',
        'if [ -n "$over" ] && [ ! -e "$run/stop" ]; then',
        "    again && exit 0",
        '    echo "no new checkpoint since the job started: not put back into the queue" >&2',
        "fi",
        'exit "$code"',
    ]


def _requeue(job: Job) -> list[str]:
    """What puts the job back into the queue, and the time limit itself, which asks for it where no warning came."""
    number = "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID" if job.array else "$SLURM_JOB_ID"
    return [
        "",
        f'job="{number}"',
        "before=$(checkpoint)",
        "queued=",
        "over=",
        "again() {  # back into the queue, but for a job without a new checkpoint, which would come back for ever",
        '    if [ -z "$queued" ] && [ "$(checkpoint)" != "$before" ]; then',
        '        scontrol requeue "$job" && queued=yes',
        "    fi",
        '    [ -n "$queued" ]',
        "}",
        "# The limit itself, if no warning came: Slurm asks the ranks to stop, and ends all KillWait seconds later.",
        "trap 'signaled=yes",
        '    case $(scontrol show job "$job") in',
        "    *Reason=TimeLimit*) limit=yes over=yes && again ;;",
        "    *) exit 143 ;;  # the job was canceled",
        "    esac' TERM",
    ]


_END = ("keep_cache", 'exit "$code"')


def _words(words: Sequence[str]) -> str:
    return " ".join(word if isinstance(word, _Variable) else shlex.quote(word) for word in words)


def _home(path: str) -> str:
    """`path` with a leading `~` replaced by the home folder of the job's user."""
    return "$HOME" + path[1:] if path == "~" or path.startswith("~/") else path


def _with_variables(text: str) -> str:
    """`text` as one shell word in which $NAME and ${NAME} are the job's variables, and all else is literal."""
    words, at = [], 0
    for found in _NAMED.finditer(text):
        words += [shlex.quote(text[at : found.start()])] if found.start() > at else []
        words.append(f'"${{{found[1] or found[2]}}}"')
        at = found.end()
    return "".join([*words, *([shlex.quote(text[at:])] if at < len(text) or not words else [])])


def _quoted(text: str) -> str:
    return f'"{text}"' if " " in text else text
