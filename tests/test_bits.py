"""The comparison of presets at two commits sees one bit, a missing array, another metric; not times of the machine."""

from __future__ import annotations

import json

import h5py
import numpy as np

from hpckit.settings.apps import apps
from tests.bits import STEPS, differences, shortened


def run_with(folder, field, **metrics):
    (folder / "output").mkdir(parents=True)
    with h5py.File(folder / "output" / "fields.h5", "w") as file:
        file["h"] = field
    (folder / "metrics.jsonl").write_text(json.dumps({"step": 1, **metrics}) + "\n")
    return folder


def test_one_bit_is_seen(tmp_path):
    field = np.linspace(1, 2, 12).reshape(3, 4)
    before = run_with(tmp_path / "before", field, energy=2.0, seconds=1.5)
    same = run_with(tmp_path / "same", field, energy=2.0, seconds=1.7)
    assert differences(before, same) == {}
    other = field.copy()
    other[1, 2] = np.nextafter(other[1, 2], 3)
    found = differences(before, run_with(tmp_path / "after", other, energy=np.nextafter(2.0, 3)))
    assert set(found) == {"fields.h5:h", "metrics:0:energy"}
    assert 0 < float(found["fields.h5:h"]) < 1e-15
    h5py.File(tmp_path / "same" / "output" / "fields.h5", "a").create_dataset("more", data=1.0)
    assert differences(before, same) == {"fields.h5:more": "only after"}


def test_presets_become_short(tmp_path):
    app = apps()["weather"]
    config = app.config.model_validate(shortened(app, "straka", tmp_path))
    assert app.dry_run(config, 1).steps <= STEPS
    assert config.grid.nx == 30
