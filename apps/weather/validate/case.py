"""A case of the suite, and access to the files of its runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hpckit.apps.common.validation import Found
from hpckit.apps.weather.validate.config import Config
from hpckit.io.fields.reader import find_fields

Folders = Mapping[str, Path]
DOUBLE = {"single": False}


@dataclass(frozen=True)
class Nested:
    """A run of a case: an app or APP/PRESET, and settings that override it."""

    target: str
    settings: dict[str, Any]


@dataclass(frozen=True)
class Case:
    """`runs`: name -> run, by the settings of the suite. `compare`: the findings, from the folders of the runs.

    `prepare` writes input files of the runs to the folder of the suite's run, which `runs` receives too. `prepare`
    and `compare` are called on rank 0.
    """

    runs: Callable[[Config, Path], Mapping[str, Nested]]
    compare: Callable[[Folders], Found]
    prepare: Callable[[Path], None] = lambda folder: None


class Output:
    """The fields of a run: `output["theta"]` is [times, …], `output.x` its coordinate (m), `output.times` in s."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = find_fields(folder)
        self.times = self["time"]

    def __getitem__(self, name: str) -> np.ndarray:
        with h5py.File(self._path, "r") as file:
            return np.asarray(file[name][...], np.float64)

    def last(self, name: str) -> np.ndarray:
        """The field at the last time."""
        with h5py.File(self._path, "r") as file:
            return np.asarray(file[name][-1], np.float64)

    def summary(self) -> dict[str, Any]:
        """The run's summary.json."""
        return json.loads((self.folder / "summary.json").read_text())

    def resolved(self) -> dict[str, Any]:
        """The run's settings."""
        return json.loads((self.folder / "resolved.json").read_text())["values"]

    def change(self, name: str) -> float:
        """Relative change of a conserved quantity over the run, without its sign."""
        return abs(self.summary()["conserved"][name]["relative_change"])

    def metric(self, name: str) -> np.ndarray:
        """A metric at all times it was reported."""
        lines = (self.folder / "metrics.jsonl").read_text().splitlines()
        return np.array([json.loads(line)[name] for line in lines], np.float64)


def relative_errors(ours: np.ndarray, exact: np.ndarray) -> tuple[float, float]:
    """L2 and maximum error, each over that norm of the exact field."""
    error = ours - exact
    return (
        float(np.sqrt((error**2).sum() / (exact**2).sum())),
        float(np.abs(error).max() / np.abs(exact).max()),
    )
