"""A folder that is removed although a process that is being ended still writes into it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hpckit.launch.scratch import scratch


def test_files_that_appear_meanwhile_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    remove, times = shutil.rmtree, 0

    def disturbed(folder: str, ignore_errors: bool) -> None:
        nonlocal times
        times += 1
        remove(folder, ignore_errors=ignore_errors)
        if times < 3:
            Path(folder, "deeper").mkdir(parents=True)

    with scratch() as name:
        Path(name, "file").touch()
        monkeypatch.setattr("shutil.rmtree", disturbed)
    assert times == 3
    assert not Path(name).exists()


def test_a_folder_that_cannot_be_removed_fails_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("shutil.rmtree", lambda folder, ignore_errors: None)
    with scratch("kept-", patience=0.1) as name:
        pass
    assert Path(name).parent == tmp_path
    assert Path(name).is_dir()


def test_what_the_block_raises_is_passed_on() -> None:
    with pytest.raises(ValueError, match="seven"), scratch() as name:
        raise ValueError("seven")
    assert not Path(name).exists()
