"""The site file: the settings shared by all job scripts of one cluster, in TOML (docs/cluster.md shows one)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from hpckit.errors import InputError
from hpckit.plan.inputs.text import parse_toml, read_text

# Characters allowed unquoted on an #SBATCH line: none ends a word, opens a quote or starts a comment.
_WORD = re.compile(r"[A-Za-z0-9_.,:@%+=/\[\]*&|-]*")
_OPTION = re.compile(r"--[a-z][a-z-]*(=[A-Za-z0-9_.,:@%+=/\[\]*&|-]+)?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Pydantic's kinds of mistakes -> what a TOML file should hold there.
EXPECTED = {
    **dict.fromkeys(("tuple_type", "list_type"), 'a list in brackets, as in ["a", "b"]'),
    "string_type": "a text in quotes",
    "dict_type": "a table, as in { key = 1 }",
    "model_type": "a table [NAME]",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
}
_LAUNCH_WORD = re.compile(r"\S+")


def _word(text: str) -> str:
    if not _WORD.fullmatch(text):
        raise ValueError("letters, digits and _ . , : @ % + = / [ ] * & | - only: it stands on an #SBATCH line")
    return text


def _option(text: str) -> str:
    if not _OPTION.fullmatch(text):
        raise ValueError("an option of sbatch as one word: --name or --name=value, without blanks and quotes")
    return text


def one_line(text: str) -> str:
    """Return `text` if it has no line break or other control character; else raise `ValueError`."""
    if any(ord(sign) < 32 or ord(sign) == 127 or sign in "\x85\u2028\u2029" for sign in text):
        raise ValueError("line breaks and control characters have no place in a job script")
    return text


def _launch_word(text: str) -> str:
    if not _LAUNCH_WORD.fullmatch(one_line(text)):
        raise ValueError('one word of the command line a string: ["-bind-to", "core"]')
    return text


def _variable(text: str) -> str:
    if not _VARIABLE.fullmatch(text):
        raise ValueError("not a name of an environment variable")
    return text


Word = Annotated[str, AfterValidator(_word)]
Text = Annotated[str, AfterValidator(one_line)]
Option = Annotated[str, AfterValidator(_option)]
LaunchWord = Annotated[str, AfterValidator(_launch_word)]
Variable = Annotated[str, AfterValidator(_variable)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Cpu(_Table):
    """Nodes without GPUs."""

    partition: Word = Field("", description="partition (queue); empty: Slurm's default")
    ranks_per_node: int = Field(0, ge=0, description="MPI ranks a node; 0: say so at hpckit submit --ranks-per-node")
    options: tuple[Option, ...] = Field((), description="more options of sbatch, one a string: --constraint=milan")


class Gpu(_Table):
    """Nodes with GPUs: one rank a GPU."""

    partition: Word = Field("", description="partition (queue); empty: Slurm's default")
    gpus_per_node: int = Field(0, ge=0, description="GPUs of a node, and ranks on it")
    cores_per_gpu: int = Field(1, ge=1, description="cores for the rank of each GPU")
    request: Literal["gpus-per-node", "gres"] = Field("gpus-per-node", description="how GPUs are asked for")
    kind: Word = Field("", description="kind of GPU where the site has several: a100")
    bind: Word = Field(
        "none", description="srun --gpu-bind: none shows a rank all GPUs of its node, and it takes its own"
    )
    options: tuple[Option, ...] = Field((), description="more options of sbatch")


class Mpi(_Table):
    """The start of ranks inside an allocation."""

    launcher: Literal["srun", "mpiexec"] = Field("srun", description="srun, or the MPI library's own mpiexec")
    pmi: Word = Field(
        "pmi2",
        description="srun --mpi=: pmi2 for MPICH and its kin, pmix for Open MPI; see srun --mpi=list; where it is not"
        " given, hpckit submit takes the one of its own MPI",
    )
    options: tuple[LaunchWord, ...] = Field(
        (), description='more words for srun or mpiexec, one a string: ["-bind-to", "core"]'
    )


class Environment(_Table):
    """What a job loads before it starts."""

    modules: tuple[Text, ...] = Field((), description="modules to load, in this order")
    venv: Text = Field(
        "", description="virtual environment to activate ($NAME and ~/ are the job's); empty: that of hpckit submit"
    )
    variables: dict[Variable, Text] = Field(
        default_factory=dict, description="environment variables to set; $NAME in a value is the job's"
    )


class Scratch(_Table):
    """Disks."""

    node_local: Text = Field(
        "/tmp", description="a disk of each node, for compiled kernels: /tmp, $TMPDIR, /scratch/$USER; empty: none"
    )


class Site(_Table):
    """One cluster."""

    account: Word = Field("", description="account (project) to charge")
    qos: Word = Field("", description="quality of service")
    requeue: bool = Field(True, description="the site lets a job put itself back into the queue")
    signal_seconds: int = Field(120, ge=10, le=3600, description="s before the time limit at which a run checkpoints")
    cpu: Cpu = Cpu()
    gpu: Gpu = Gpu()
    mpi: Mpi = Mpi()
    environment: Environment = Environment()
    scratch: Scratch = Scratch()


def load_site(path: Path) -> Site:
    """The site file at `path`. Raises `InputError` that lists every mistake."""
    tree = read_toml_file(path, "the site file", do="hpckit submit --site FILE")
    try:
        return Site.model_validate(tree)
    except ValidationError as error:
        mistakes = [f"{'.'.join(map(str, entry['loc']))}: {told(entry)}" for entry in error.errors(include_url=False)]
        raise InputError("\n".join(mistakes), where=str(path), do="docs/cluster.md lists the settings") from None


def told(entry: Any) -> str:
    """Pydantic's error at one setting, in the words of TOML."""
    if entry["type"] in EXPECTED:
        return f"expected {EXPECTED[entry['type']]}"
    return str(entry["msg"]).removeprefix("Value error, ").replace("Input should be", "must be")


def read_toml_file(path: Path, what: str, do: str = "") -> dict[str, Any]:
    """The tables of a TOML file. what: its name in errors, such as "the graph"; do: the advice if it cannot be read.

    Raises `InputError`.
    """
    text = read_text(path, what, do=do)
    try:
        return parse_toml(text)
    except ValueError as error:
        raise InputError(f"{what} is not TOML: {error}", where=str(path)) from None
