"""Safetensors files: back as they went, as the `safetensors` package writes and reads them, damage told."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest

from hpckit.errors import CorruptDataError, InputError
from hpckit.io.safetensors import Safetensors, save_safetensors


def tensors():
    numbers = np.random.default_rng(3)
    return {
        "a.weight": numbers.standard_normal((7, 11)).astype(np.float32),
        "b": numbers.standard_normal(13),
        "empty": np.zeros((0, 3), np.float16),
        "scalar": np.array(5, np.int64),
        "turned": np.arange(12, dtype=np.int32).reshape(3, 4).T,
        "flags": np.array([True, False]),
    }


def test_tensors_come_back(tmp_path):
    path = tmp_path / "x.safetensors"
    save_safetensors(path, tensors(), {"format": "pt"})
    found = Safetensors(path)
    assert list(found) == list(tensors())
    assert found.metadata == {"format": "pt"}
    for name, tensor in tensors().items():
        np.testing.assert_array_equal(found[name], tensor)
        assert found[name].dtype == tensor.dtype
        assert found.shape(name) == tensor.shape
    package = pytest.importorskip("safetensors.numpy", reason="the package safetensors is not installed")
    theirs = package.load_file(path)
    package.save_file({name: np.ascontiguousarray(tensor) for name, tensor in tensors().items()}, tmp_path / "y")
    ours = Safetensors(tmp_path / "y")
    for name, tensor in tensors().items():
        np.testing.assert_array_equal(theirs[name], tensor)
        np.testing.assert_array_equal(ours[name], tensor)


def test_bfloat16_is_read_as_float32(tmp_path):
    values = np.array([1.5, -3.0, 0.0, 2.0**100, np.inf], np.float32)
    half = (values.view(np.uint32) >> 16).astype("<u2")
    header = json.dumps({"w": {"dtype": "BF16", "shape": [5], "data_offsets": [0, 10]}}).encode()
    (tmp_path / "w.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + half.tobytes())
    np.testing.assert_array_equal(Safetensors(tmp_path / "w.safetensors")["w"], values)


def test_a_checkpoint_in_several_files(tmp_path):
    save_safetensors(tmp_path / "m-1.safetensors", {"a": np.arange(3.0)})
    save_safetensors(tmp_path / "m-2.safetensors", {"b": np.arange(4.0)})
    index = {"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert {name: len(array) for name, array in Safetensors(tmp_path).items()} == {"a": 3, "b": 4}
    index["weight_map"]["c"] = "../m-3.safetensors"
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(InputError, match="m-3"):
        Safetensors(tmp_path)


def test_what_is_no_checkpoint_is_told(tmp_path):
    with pytest.raises(InputError, match="no checkpoint"):
        Safetensors(tmp_path)
    with pytest.raises(InputError, match="does not have"):
        save_safetensors(tmp_path / "x", {"z": np.zeros(3, complex)})
    path = tmp_path / "x.safetensors"
    save_safetensors(path, tensors())
    whole = path.read_bytes()
    for length in (0, 4, 20, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(CorruptDataError):
            Safetensors(path)
    path.write_bytes(struct.pack("<Q", 3) + b"[1]" + b"x" * 20)
    with pytest.raises(CorruptDataError):
        Safetensors(path)
