"""Contacts of spheres: every form against the reference, over two steps between which neighbors come and go."""

from __future__ import annotations

import numpy as np
import pytest
from test_particle_kernels import clustered, listed, scattered

from hpckit.comm.device import HOST
from hpckit.kernels.compile import vectors
from hpckit.kernels.particles.cells import reference as cells_reference
from hpckit.kernels.particles.granular import reference
from hpckit.kernels.particles.granular.simd import contact_kernel, near_kernel, work_of
from hpckit.kernels.particles.pair.potential import Form

EXTENT = (7.0, 8.0, 9.0)
GIVEN = reference.Contact(2000.0, 600.0, 5.0, 3.0, 0.5)
BEST = vectors.available()[0]
FORMS = [
    pytest.param(Form(isa, measure=measure, exact=exact), law, memory, marks=[] if daily else pytest.mark.nightly)
    for isa in vectors.available()
    for measure, exact, law, memory, daily in (
        (True, False, "hooke", True, isa == BEST),
        (True, True, "hertz", True, len(vectors.available()) == 1),
        (False, False, "hooke", False, False),
    )
]


def spheres(slots, own):
    """Velocities with radii, and spins with 1 / mass, of all slots; every seventh sphere does not move."""
    rng = np.random.default_rng(3)
    motion = HOST.zeros((2, len(slots), 4))
    filled = np.flatnonzero(slots[:own, 0] < 1e7)
    motion[:, filled, :3] = rng.normal(0.0, 3.0, (2, len(filled), 3))
    motion[0, filled, 3] = rng.choice([0.45, 0.55], len(filled))
    motion[1, filled, 3] = np.where(filled % 7 == 0, 0.0, 1.0 / (4.0 * motion[0, filled, 3] ** 3))
    return motion


@pytest.mark.parametrize(("form", "law", "memory"), FORMS, ids=str)
def test_every_form_agrees_with_the_reference(form, law, memory):
    slots, starts, grid = clustered(scattered(601, EXTENT), EXTENT)
    start, entries, clusters = listed(slots, starts, grid, EXTENT, 1.35, form.isa, form.lanes)
    own, every = 8 * clusters, np.arange(clusters, dtype=np.int32)
    motion = spheres(slots, own)
    room, counts = len(entries) + 8, np.zeros(clusters, np.int32)
    owners, others = np.zeros(room, np.int32), np.zeros(room, np.int32)
    memories = [HOST.zeros((room,)) for _ in range(3)]
    scratch = np.zeros(2 * 512, np.int32), np.zeros(3 * 512)
    first, second = cells_reference.neighbors(slots[:own], own, 1.35)
    slid = np.zeros((len(first), 3))
    find, touch = near_kernel(form), contact_kernel(form, law, memory)
    forces, torques, tallies = HOST.zeros((own, 4)), HOST.zeros((own, 4)), np.zeros((own, 8))
    rng = np.random.default_rng(4)
    for dt in (0.0, 0.002, 0.004, 0.004):
        flat = slots.ravel(), start
        moving = motion[1].ravel()
        find(every, *flat, entries, np.int32(4 * own), 1.1, moving, owners, others, counts, *memories, *scratch)
        out = forces.ravel(), torques.ravel(), tallies.ravel(), HOST.zeros((work_of(512),))
        moved = motion[0].ravel(), moving
        touch(every, *flat, owners, others, counts, GIVEN, dt, *moved, *memories, *out)
        expected = reference.contacts_of_pairs(slots, motion, first, second, slid, GIVEN, law, memory, dt)
        slid = expected[3]
        for found, wanted in zip((forces, torques, tallies), expected[:3], strict=True):
            if found is tallies and not form.measure:
                continue
            assert np.abs(found - wanted[:own]).max() < 1e-11 * np.abs(wanted).max()
        if memory:
            used = [k for c in range(clusters) for k in range(start[8 * c], start[8 * c] + counts[c])]
            there = {(owners[k] // 4, others[k] // 4): k for k in used}
            places = np.array([there.get(pair, room - 1) for pair in zip(first.tolist(), second.tolist(), strict=True)])
            kept = np.stack([each[places] for each in memories], axis=1)
            np.testing.assert_allclose(kept, slid, rtol=1e-9, atol=1e-15)
            assert dt == 0.0 or (slid != 0.0).any(axis=1).sum() > 300
        slots[:own, :3] += rng.normal(0.0, 0.03, (own, 3)) * (slots[:own, :1] < 1e7)
