"""Training on GPUs, in Numba's simulator: steps against those of the host, and whole runs."""

from __future__ import annotations

import json

import numpy as np
import pytest
from test_simulated import ON_GPU, hpckit, on_gpu

TINY = (
    "precision=float64", "model.layers=1", "model.width=4", "model.heads=2", "model.context=4", "data.file=text.txt",
    "batch.size=2", "time.validate_every=0", "time.validate_samples=1", "sample.tokens=3", "--no-report",
)  # fmt: skip


@pytest.mark.nightly
def test_training_on_a_device_follows_the_host(mpirun, monkeypatch):
    on_gpu(monkeypatch)
    assert "all good" in mpirun(2, "device_training.py", timeout=200).stdout


@pytest.mark.nightly
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_all_models_and_meshes_on_a_device_follow_the_host(mpirun, monkeypatch, ranks):
    on_gpu(monkeypatch)
    assert "all good" in mpirun(ranks, "device_training.py", "all", timeout=280).stdout


def losses(directory) -> list[float]:
    lines = (directory / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "split",
    [
        ("-n", 1),
        ("-n", 2, "mesh.dp=2"),
        ("-n", 2, "mesh.pp=2", "batch.microbatches=2"),
        ("-n", 4, "mesh.dp=2", "mesh.tp=2", "sharding.stage=3"),
    ],
)
def test_a_run_on_gpus_trains_saves_resumes_and_writes(tmp_path, split):
    (tmp_path / "text.txt").write_text("abcab cab acb bca abc bca " * 8)
    whole = hpckit("run", "train/gpt", *TINY, "time.steps=3", "--directory", "cores", cwd=tmp_path)
    assert whole.code == 0, whole.stderr
    part = ("time.steps=3", "time.limit=1 s", "--directory", "gpus", "--gpu", *split)
    stopped = hpckit("run", "train/gpt", *TINY, *part, cwd=tmp_path, timeout=280, **ON_GPU)
    assert stopped.code == 75, stopped.stderr
    done = hpckit("resume", "gpus", "time.limit=1 h", cwd=tmp_path, timeout=280, **ON_GPU)
    assert done.code == 0, done.stderr
    assert "GPU: " in done.stdout
    np.testing.assert_allclose(losses(tmp_path / "gpus"), losses(tmp_path / "cores"), rtol=1e-12)
    texts = [(tmp_path / name / "output" / "sample.txt").read_text() for name in ("gpus", "cores")]
    assert texts[0] == texts[1]
