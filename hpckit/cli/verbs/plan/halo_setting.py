"""The setting of `hpckit plan halo`: its options, checked with all mistakes at once."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpckit.errors import InputError
from hpckit.plan.machine.machine import Machine, machine_of
from hpckit.report.units import counted

EXAMPLE = "hpckit plan halo --shape 4096x2048 --ranks 64 --halo 2 --fields 5"
NAMES = "tzyx"  # of the axes, from the last dim on, as the apps call them
RANKS, MOST_RANKS = 16, 1 << 20


@dataclass(frozen=True)
class HaloSetting:
    """An exchange and its machine. axes: ranks along each, 0 to be chosen; itemsize: bytes of a cell, all fields."""

    shape: tuple[int, ...]
    ranks: int
    axes: Mapping[str, int]
    periodic: tuple[str, ...]
    halo: tuple[int, ...]
    fields: int
    dtype: np.dtype
    machine: Machine

    @property
    def itemsize(self) -> int:
        """Bytes of a cell in all fields."""
        return self.fields * self.dtype.itemsize


def read_setting(options: argparse.Namespace) -> HaloSetting:
    """The options read; raises `InputError` with all that is wrong in them."""
    faults: list[str] = []

    def read(make: Callable[..., Any], *given: Any, otherwise: Any) -> Any:
        try:
            return make(*given)
        except InputError as error:
            faults.append(f"{error.message} ({error.do})" if error.do else error.message)
            return otherwise

    shape = read(_shape, options.shape, otherwise=())
    names = tuple(NAMES[len(NAMES) - len(shape) :]) if shape else tuple(NAMES)
    periodic = read(_periodic, options.periodic, names, otherwise=())
    split = read(_split, options.split, names, otherwise={})
    ranks = read(_ranks, options.ranks, split, names, otherwise=1)
    halo = read(_halo, options.halo, len(shape), otherwise=())
    fields = read(_whole, options.fields, "--fields", 1, otherwise=1)
    dtype = read(_dtype, options.dtype, otherwise=np.dtype("f8"))
    machine = read(machine_of, options.machine, otherwise=None)
    if faults or machine is None:
        raise InputError("; ".join(faults), do=f"mend {'it' if len(faults) == 1 else 'them'}, as in: {EXAMPLE}")
    return HaloSetting(shape, ranks, {**dict.fromkeys(names, 0), **split}, periodic, halo, fields, dtype, machine)


def _whole(text: str, what: str, least: int) -> int:
    """A number from `least` on, which is 0 or more."""
    if not re.fullmatch(r"\d{1,18}", text.strip()) or int(text) < least:
        raise InputError(f"{what} {text!r} is not a whole number of {least} or more")
    return int(text)


def _shape(text: str | None) -> tuple[int, ...]:
    if not text:
        raise InputError("--shape is missing", do="give the cells of the grid, as in 4096x2048")
    parts = re.split(r"[x,]", text.lower())
    if len(parts) > len(NAMES):
        raise InputError(f"--shape {text!r} has {len(parts)} dims", do=f"give at most {len(NAMES)}")
    return tuple(_whole(part, f"--shape {text}:", 1) for part in parts)


def _periodic(text: str, names: tuple[str, ...]) -> tuple[str, ...]:
    given = [name.strip() for name in text.split(",")] if text.strip() else []
    _refuse_unknown("--periodic", given, names)
    return tuple(given)


def _split(text: str, names: tuple[str, ...]) -> dict[str, int]:
    pairs = [part.partition("=") for part in text.split(",")] if text.strip() else []
    given = [name.strip() for name, _, _ in pairs]
    _refuse_unknown("--split", given, names)
    if len(set(given)) < len(given):
        raise InputError(f"--split {text!r} names an axis twice")
    return {name: _whole(size, f"--split {name} =", 0) for name, (_, _, size) in zip(given, pairs, strict=True)}


def _refuse_unknown(option: str, given: list[str], names: tuple[str, ...]) -> None:
    wrong = [name for name in given if name not in names]
    if wrong:
        raise InputError(f"{option}: no axis is called {', '.join(map(repr, wrong))}", do=f"axes: {', '.join(names)}")


def _ranks(text: str | None, split: Mapping[str, int], names: tuple[str, ...]) -> int:
    fixed = math.prod(size for size in split.values() if size)
    complete = all(split.get(name) for name in names)
    ranks = _whole(text, "--ranks", 1) if text is not None else fixed if complete else RANKS
    if ranks > MOST_RANKS:
        raise InputError(f"{ranks} ranks are too many", do=f"give at most {MOST_RANKS}")
    if (ranks != fixed) if complete else ranks % fixed:
        parts = " x ".join(str(size) for size in split.values() if size)
        raise InputError(f"{counted(ranks, 'rank')} cannot be {parts}", do="mend --ranks or --split")
    return ranks


def _halo(text: str, dims: int) -> tuple[int, ...]:
    widths = tuple(_whole(part, f"--halo {text}:", 0) for part in text.split(","))
    if dims and len(widths) not in (1, dims):
        raise InputError(f"--halo {text!r} has {len(widths)} widths", do=f"give one, or one for each of {dims} dims")
    return widths * dims if len(widths) == 1 else widths


def _dtype(text: str) -> np.dtype:
    try:
        dtype = np.dtype(text)
    except (TypeError, ValueError, SyntaxError):
        dtype = np.dtype("O")
    if dtype.kind not in "biufc":
        raise InputError(f"--dtype {text!r} is not a number type", do="give one of f4, f8, c16, i4, …")
    return dtype
