"""Fields: scatter and gather, coordinates, reductions that do not depend on the number of ranks."""

from __future__ import annotations

import math
import sys

import numpy as np
from mpi4py import MPI
from refusals import refused

import hpckit as hp
from hpckit.collectives import whole as whole_arrays
from hpckit.errors import InputError

COMM = MPI.COMM_WORLD


def test_scatter_and_gather_are_inverse(mesh, dec):
    forms = ((np.float64, ()), (np.int16, (3,)), (np.complex64, (2, 2)), (">f8", ()))
    for (dtype, components), whole_arrays.ROUND in zip(forms, (1 << 26, 700, 1, 3000), strict=True):
        values = np.random.default_rng(3).integers(0, 99, (*components, *dec.global_shape)).astype(dtype)
        for root in {0, mesh.size - 1}:
            field = hp.Field.from_global(mesh, dec, values if mesh.rank == root else None, root, units="K")
            assert field.data.dtype == np.dtype(dtype)
            assert np.array_equal(field.interior, values[(..., *dec.global_slices(mesh.rank))])
            found = field.gather(root)
            assert (found is None) == (mesh.rank != root)
            assert found is None or (np.array_equal(found, values) and found.dtype == values.dtype)
    for wrong, words in (
        (np.zeros((2, 2)), "(2, 2)"),
        (None, "is missing"),
        ([[1.0]], "(1, 1)"),
        (np.zeros(dec.global_shape, "f4,i2"), "holds [('f0'"),
        (np.zeros(dec.global_shape, object), "holds object"),
    ):
        try:
            hp.Field.from_global(mesh, dec, wrong if mesh.rank == 0 else None)
        except InputError as error:
            assert words in error.message, error.message
        else:
            raise AssertionError(f"a global array was taken that {words}")
    nested = np.ones(dec.global_shape).tolist()
    assert hp.Field.from_global(mesh, dec, nested if mesh.rank == 0 else None).sum() == np.prod(dec.global_shape)


def test_rows_of_any_number_a_rank(mesh):
    """Records of a size of their own; the first rank has none."""
    rows = np.zeros(mesh.rank * 3, [("id", "i8"), ("pair", "f4", 2), ("odd", "u1")])
    rows["id"], rows["odd"] = np.arange(len(rows)) + 100 * mesh.rank, mesh.rank
    every = whole_arrays.rows_of_ranks(rows, mesh)
    assert [len(each) for each in every] == [3 * rank for rank in range(mesh.size)]
    for rank, each in enumerate(every):
        assert each.dtype == rows.dtype
        assert each["id"].tolist() == [100 * rank + i for i in range(3 * rank)]
        assert (each["odd"] == rank).all()


def test_coordinates_are_those_of_the_global_points(mesh, dec):
    field = hp.Field.zeros(mesh, dec)
    start = dec.start(mesh.rank)
    for d, places in enumerate(field.coords((0.5, 0.25), origin=(1.0, -2.0), halo=True)):
        step, origin = (0.5, 0.25)[d], (1.0, -2.0)[d]
        offset = 0.5 if dec.location[d] == "center" else 0.0
        index = start[d] - dec.halo[d] + np.arange(places.size)
        assert np.array_equal(places.ravel(), origin + (index + offset) * step)


def test_reductions(mesh, dec):
    rng = np.random.default_rng(4)
    values = rng.standard_normal(dec.global_shape) * 10.0 ** rng.integers(-12, 12, dec.global_shape)
    field = hp.Field.from_global(mesh, dec, values if mesh.rank == 0 else None)
    field.data[0] = 1e300  # halo must not count
    field.interior[...] = values[dec.global_slices(mesh.rank)]
    exact = math.fsum(values.ravel())
    assert (field.max(), field.min()) == (values.max(), values.min())
    assert abs(field.sum() - exact) <= 1e-9 * np.abs(values).sum()
    assert abs(field.sum(repro=True) - exact) <= 1e-15 * np.abs(values).sum()
    assert math.isclose(field.norm(repro=True), np.linalg.norm(values), rel_tol=1e-14)
    assert math.isclose(field.norm(), np.linalg.norm(values), rel_tol=1e-13)
    counts = hp.Field.from_global(mesh, dec, np.arange(values.size).reshape(values.shape))
    assert counts.sum() == values.size * (values.size - 1) // 2
    results = [field.sum(repro=True).hex(), field.norm(repro=True).hex()]
    if mesh.rank == mesh.size - 1:
        field.interior[0, 0] = math.nan
    assert math.isnan(field.max())
    assert math.isnan(field.sum())
    assert math.isnan(field.sum(repro=True))
    return results


def test_integers_are_exact_and_complex_numbers_have_no_extremes(mesh, dec):
    for dtype, value in ((np.int64, 2**53 + 1), (np.uint64, 2**63 + 5), (np.int8, -128), (bool, True)):
        field = hp.Field.zeros(mesh, dec, dtype)
        if mesh.rank == mesh.size - 1:
            field.interior[-1, -1] = value
        assert field.sum() == value
        assert (field.max() if value > 0 else field.min()) == value
        assert isinstance(field.max(), int)
    counts = hp.Field.zeros(mesh, dec, np.int32)
    counts.interior[...] = 2
    assert counts.norm() == 2 * np.sqrt(np.prod(dec.global_shape))
    swapped = hp.Field.zeros(mesh, dec, ">f8")
    swapped.interior[...] = 0.1
    assert swapped.sum(repro=True) == math.fsum([0.1] * int(np.prod(dec.global_shape)))
    waves = hp.Field.zeros(mesh, dec, complex)
    for reduction, words in (
        (waves.max, "no order"),
        (waves.argmin, "no order"),
        (lambda: waves.norm(3), "no norm of order 3"),
        (lambda: waves.dot(hp.Field.zeros(mesh, dec, components=2)), "have no product"),
        (hp.Field.zeros(mesh, dec, "S3").sum, "need numbers"),
    ):
        try:
            reduction()
        except InputError as error:
            assert words in error.message
        else:
            raise AssertionError(f"a reduction was taken that has {words}")


def test_products_norms_and_places_are_those_of_numpy(mesh, dec):
    rng, results = np.random.default_rng(5), []
    for dtype, components in ((np.float64, ()), (np.float32, (3,)), (np.complex128, (2,)), (np.int8, ())):
        shape = (*components, *dec.global_shape)
        one, other = (20 * rng.standard_normal((2, *shape)) + 9j * rng.standard_normal((2, *shape))).astype(dtype)
        fields = [hp.Field.from_global(mesh, dec, values if mesh.rank == 0 else None) for values in (one, other)]
        wide = np.int64 if dtype is np.int8 else np.complex128 if dtype is np.complex128 else np.float64
        one, other = one.astype(wide), other.astype(wide)
        for repro in (False, True):
            sums = [fields[0].sum(repro), fields[0].mean(repro), fields[0].dot(fields[1], repro)]
            norms = [fields[0].norm(order, repro) for order in (1, 2, math.inf)]
            assert np.allclose(sums, [one.sum(), one.mean(), np.vdot(one, other)], rtol=1e-11, atol=1e-11)
            assert np.allclose(norms, [np.linalg.norm(one.ravel(), order) for order in (1, 2, math.inf)], rtol=1e-12)
        results += [repr(number) for number in (*sums, *norms)]
        if wide is np.complex128:
            continue
        for values in (one, np.round(one / 30)):  # the second with many that are the largest
            fields[0].interior[...] = values[(..., *dec.global_slices(mesh.rank))]
            assert fields[0].argmax() == np.unravel_index(values.argmax(), shape)
            assert fields[0].argmin() == np.unravel_index(values.argmin(), shape)
    nan = hp.Field.zeros(mesh, dec)
    nan.interior[-1, :] = nan.interior[0, 0] = math.nan
    whole = nan.gather()
    places = nan.argmax(), nan.argmin()
    assert whole is None or places == (np.unravel_index(whole.argmax(), whole.shape),) * 2
    return results


def test_what_is_given_wrongly_is_said(mesh, dec):
    field = hp.Field.zeros(mesh, dec)
    for wrong, words in (
        (lambda: field.gather(root=mesh.size), f"root {mesh.size} is not"),
        (lambda: field.gather(root=-1), "root -1 is not"),
        (lambda: hp.Field.from_global(mesh, dec, None, root=mesh.size), f"root {mesh.size} is not"),
        (lambda: field.coords((1.0, 2.0, 3.0)), "one for each of 2"),
        (lambda: hp.Field.zeros(mesh, dec, "flaot"), "is not a dtype"),
        (lambda: hp.Field.zeros(mesh, dec, object), "objects"),
        (lambda: hp.Field.zeros(mesh.topology, dec), "lives on a mesh"),
        (lambda: hp.Field.zeros(mesh, (4, 4)), "are a decomposition"),
        (lambda: hp.Field(mesh, dec, [[0.0]]), "not a list"),
        (lambda: field.set_from_host(np.zeros((1, 1, 1))), "the values are (1, 1, 1)"),
        (lambda: hp.Decomposition((4, 4), mesh), "over a topology"),
        (lambda: hp.Mesh(None, x=0), "made of a communicator"),
        (lambda: hp.bc.fixed("a"), "at a number"),
        (lambda: hp.HaloExchange(mesh, field, {"y": hp.bc.fixed}), "fixed at a value"),
        (lambda: hp.HaloExchange(mesh, field, {"y": hp.bc.fixed(1j)}), "does not fit"),
    ):
        refused(wrong, words)


def test_components_are_counts(mesh, dec):
    assert hp.Field.zeros(mesh, dec, components=np.int64(3)).data.shape[0] == 3
    for components in (("u", "v"), 1.5, (2, -1)):
        try:
            hp.Field.zeros(mesh, dec, components=components)
        except InputError as error:
            assert "are not counts" in error.message
        else:
            raise AssertionError(f"{components} were taken")


def test_to_xarray(mesh, dec):
    field = hp.Field.zeros(mesh, dec, name="theta", units="K", components=2)
    field.interior[...] = mesh.rank
    array = field.to_xarray((10.0, 5.0))
    if mesh.rank:
        assert array is None
        return
    assert array.dims == ("component_0", "y", "x")
    assert array.attrs["units"] == "K"
    assert array["x"][0] == (2.5 if dec.location[1] == "center" else 0.0)
    assert array.shape == (2, *dec.global_shape)


if __name__ == "__main__":
    lines = []
    for location in ("center", "face"):
        with hp.Mesh(COMM, y=0, x=0, periodic=("x",)) as the_mesh:
            decomposition = hp.Decomposition((23, 31), the_mesh.topology, (2, 1), location)
            test_scatter_and_gather_are_inverse(the_mesh, decomposition)
            test_rows_of_any_number_a_rank(the_mesh)
            test_coordinates_are_those_of_the_global_points(the_mesh, decomposition)
            lines += test_reductions(the_mesh, decomposition)
            test_integers_are_exact_and_complex_numbers_have_no_extremes(the_mesh, decomposition)
            lines += test_products_norms_and_places_are_those_of_numpy(the_mesh, decomposition)
            test_what_is_given_wrongly_is_said(the_mesh, decomposition)
            test_components_are_counts(the_mesh, decomposition)
            test_to_xarray(the_mesh, decomposition)
    if COMM.rank == 0:
        print(*lines, file=sys.stdout)
