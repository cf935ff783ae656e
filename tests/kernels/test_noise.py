"""Counter-based random numbers: the published words, and numbers that are what they claim to be."""

from __future__ import annotations

import numpy as np

from hpckit.kernels.noise import reference, simd


def test_philox_gives_the_known_answers():
    """Of the authors' library Random123, its file kat_vectors (philox4x32, 10 rounds)."""
    cases = [
        ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ]
    for counter, key, words in cases:
        found = reference.philox(np.array(counter, np.uint64)[:, None], key)[:, 0]
        assert " ".join(f"{int(word):08x}" for word in found) == words


def test_both_forms_give_the_same_numbers():
    ids = np.random.default_rng(1).integers(0, 1 << 40, 101)
    for name in ("uniforms", "normals"):
        for seed, step, stream in ((1, 0, 0), ((1 << 60) + 7, (1 << 35) + 3, 9)):
            out, expected = np.zeros((101, 4)), np.zeros((101, 4))
            getattr(simd, name)(seed, step, ids, stream, out)
            getattr(reference, name)(seed, step, ids, stream, expected)
            np.testing.assert_allclose(out, expected, rtol=1e-13, atol=1e-14)


def test_normals_are_normal_and_independent():
    out = np.zeros((200_000, 4))
    simd.normals(4, 5, np.arange(200_000), 1, out)
    assert np.abs(out.mean(axis=0)).max() < 0.01
    assert np.abs((out**2).mean(axis=0) - 1).max() < 0.015
    assert np.abs((out**4).mean(axis=0) - 3).max() < 0.1
    assert np.abs(np.corrcoef(out.T) - np.eye(4)).max() < 0.01
    later = np.zeros((200_000, 4))
    simd.normals(4, 6, np.arange(200_000), 1, later)
    assert abs(np.corrcoef(out[:, 0], later[:, 0])[0, 1]) < 0.01
    for kernels in (simd, reference):
        empty = np.full((3, 4), 7.0)
        kernels.normals(1, 1, np.array([-1, 2, -1]), 0, empty)
        assert (empty[[0, 2]] == 7).all()
        assert (empty[1] != 7).all()
