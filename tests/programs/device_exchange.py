"""Halo exchange between fields on GPUs, real or simulated: the same halos as between the same fields on the host."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
from mpi4py import MPI

import hpckit as hp
from hpckit.comm.checksums import Checksums
from hpckit.comm.device import HOST
from hpckit.comm.gpu import find_gpu
from hpckit.comm.observe.observer import Observer
from hpckit.comm.simulated_gpu import SimulatedGpu
from hpckit.errors import InputError, SilentCorruptionError
from hpckit.kernels import stencil
from hpckit.kernels.device_array import is_device_array

WORLD = MPI.COMM_WORLD
DEVICE = find_gpu(WORLD)
SHAPES = {1: (13,), 2: (7, 11), 3: (7, 6, 9)}
FILLS = [{"y": hp.bc.mirror}, {"y": (hp.bc.zero_gradient, hp.bc.fixed(3.0))}, {"y": hp.bc.antisymmetric}]


def both(dec, mesh, dtype, components=(), rng=None):
    """The same random values on the host and on the device, halo and all."""
    host = hp.Field.zeros(mesh, dec, dtype, components=components)
    there = hp.Field.zeros(mesh, dec, dtype, components=components, device=DEVICE)
    host.data[...] = (100 * rng.normal(size=host.data.shape)).astype(dtype)
    there.data[...] = DEVICE.to_device(host.data)
    return host, there


def check(mesh, pairs, what, **options):
    """Exchange, exchange in two halves, and accumulate."""
    hosts, theres = [host for host, _ in pairs], [there for _, there in pairs]
    with hp.HaloExchange(mesh, hosts, **options) as on_host, hp.HaloExchange(mesh, theres, **options) as on_device:
        assert on_host.nbytes == on_device.nbytes
        on_host(hosts)
        on_device(theres)
        for host, there in pairs:
            assert is_device_array(there.data)
            np.testing.assert_array_equal(DEVICE.to_host(there.data), host.data, err_msg=f"{what} rank {mesh.rank}")
            host.interior[...] *= 2
            there.interior[...] *= 2
        on_host.start(hosts)
        on_device.start(theres)
        on_host.finish(hosts)
        on_device.finish(theres)
        on_host.accumulate(hosts)
        on_device.accumulate(theres)
        for host, there in pairs:
            np.testing.assert_array_equal(DEVICE.to_host(there.data), host.data, err_msg=f"{what} rank {mesh.rank}")


def halos(rng):
    """All numbers of dims, periodic or not, several widths."""
    count = 0
    for dims, width in ((1, 2), (2, 1), (2, 2), (3, 1)):
        names = ("z", "y", "x")[-dims:]
        for periodic in (names, (), names[-1:]):
            with hp.Mesh(WORLD, periodic=periodic, shape=SHAPES[dims], halo=width, **dict.fromkeys(names, 0)) as mesh:
                dec = hp.Decomposition(SHAPES[dims], mesh.topology, halo=width)
                dtype = (np.float64, np.float32, np.int32)[count % 3]
                check(mesh, [both(dec, mesh, dtype, rng=rng)], f"{dims} dims, {periodic}, {width}")
                count += 1
    return count


def several_fields_walls_and_components(rng):
    """Staggered fields of different dtypes and widths in one exchange, with walls; one sweep alone."""
    with hp.Mesh(WORLD, y=0, x=0, periodic="x", shape=(12, 14), halo=2) as mesh:
        centers = hp.Decomposition((12, 14), mesh.topology, halo=2)
        faces = hp.Decomposition((12, 14), mesh.topology, halo=1, location=("face", "center"))
        pairs = [
            both(centers, mesh, np.float64, (2,), rng),
            both(centers, mesh, np.float32, rng=rng),
            both(faces, mesh, np.float64, rng=rng),
        ]
        check(mesh, pairs, "walls", walls=FILLS)
        check(mesh, pairs, "one axis", axes="x")


def fields(rng):
    """Scatter, gather, sums and extremes of a field on the device are those of the host."""
    values = rng.normal(size=(13, 17)) if WORLD.rank == 0 else None
    with hp.Mesh(WORLD, y=0, x=0) as mesh:
        dec = hp.Decomposition((13, 17), mesh.topology)
        host = hp.Field.from_global(mesh, dec, values)
        there = hp.Field.from_global(mesh, dec, values, device=DEVICE)
        assert is_device_array(there.data)
        assert is_device_array(there.like().data)
        np.testing.assert_array_equal(there.to_host(), host.interior)
        whole = there.gather()
        if mesh.rank == 0:
            assert type(whole) is np.ndarray
            np.testing.assert_array_equal(whole, values)
        assert (there.min(), there.max()) == (host.min(), host.max())
        assert there.sum(repro=True).hex() == host.sum(repro=True).hex()
        assert there.norm(repro=True).hex() == host.norm(repro=True).hex()
        assert np.isclose(there.sum(), host.sum(), rtol=1e-14)
        there.set_from_host(7)
        assert there.sum() == 7 * 13 * 17
        numbers = hp.Field.zeros(mesh, dec, np.int32, device=DEVICE)
        numbers.set_from_host(3)
        assert numbers.sum() == 3 * 13 * 17
        assert numbers.max() == 3


def refusals():
    """What is on one side is not taken for what is on the other."""
    with hp.Mesh(WORLD, y=0, x=0, periodic=("y", "x")) as mesh:
        dec = hp.Decomposition((12, 12), mesh.topology)
        host, there = hp.Field.zeros(mesh, dec), hp.Field.zeros(mesh, dec, device=DEVICE)
        halo = hp.HaloExchange(mesh, there)
        with pytest.raises(InputError, match="field 0 is on the host, the exchange was made for fields on a GPU"):
            halo(host)
        with pytest.raises(InputError, match="is on a GPU, the exchange was made for fields on the host"):
            hp.HaloExchange(mesh, host)(there)
        with pytest.raises(InputError, match="some of the fields are on a GPU"):
            hp.HaloExchange(mesh, [host, there])
        with pytest.raises(InputError, match="the array is on a GPU, the device of the field is CPU"):
            hp.Field(mesh, dec, there.data)
        if isinstance(DEVICE, SimulatedGpu):
            with pytest.raises(TypeError, match="copy it with"):
                there.interior[...] = np.ones(there.interior.shape)
        with pytest.raises(TypeError):
            _ = there.data + host.data
        with pytest.raises(InputError, match="float16"):
            hp.HaloExchange(mesh, hp.Field.zeros(mesh, dec, np.float16, device=DEVICE))
        halo.close()


def sealed(rng):
    """Checksums follow the messages of a device, and tell a value that changed on the way."""
    if WORLD.size == 1:
        return
    with hp.Mesh(WORLD, Observer(Checksums()), y=0, x=1, periodic="y") as mesh:
        dec = hp.Decomposition((12, 5), mesh.topology)
        check(mesh, [both(dec, mesh, np.float64, rng=rng)], "sealed")
        field = both(dec, mesh, np.float64, rng=rng)[1]
        halo = hp.HaloExchange(mesh, field)
        halo.start(field)
        if mesh.rank == 1:  # the first of its halo is another once it has come
            ((binding, _),) = [halo._flying]
            binding.there[-1].after.append((field.data.__setitem__, ((0, 0), 7.5)))
            with pytest.raises(SilentCorruptionError, match="halo along y"):
                halo.finish(field)
            halo._flying = None
        else:
            halo.finish(field)


def heat():
    """The heat equation, its core computed while messages fly, on all ranks against the same on one core."""
    shape, steps = ((6, 5, 7), 3) if isinstance(DEVICE, SimulatedGpu) else ((64, 96, 80), 50)
    start = np.random.default_rng(0).normal(size=shape)
    there = heated(WORLD, DEVICE, start, steps)
    if WORLD.rank == 0:
        host = heated(MPI.COMM_SELF, HOST, start, steps)
        np.testing.assert_allclose(there, host, rtol=0, atol=1e-12 * np.abs(host).max())


def heated(comm, device, start, steps):
    """The whole field at the end, on rank 0 of `comm`."""
    with hp.Mesh(comm, z=0, y=0, x=0, periodic="x", shape=start.shape) as mesh:
        cells = hp.Decomposition(start.shape, mesh.topology)
        now = hp.Field.from_global(mesh, cells, start if mesh.rank == 0 else None, device=device)
        after = now.like()
        with hp.HaloExchange(mesh, now, walls={"z": "mirror", "y": ("zero_gradient", 0.5)}) as exchange:
            for _ in range(steps):
                exchange.start(now)
                stencil.diffuse(after.data, now.data, 1.0, 0.15, 1.0, now.core)
                exchange.finish(now)
                stencil.diffuse(after.data, now.data, 1.0, 0.15, 1.0, now.rim)
                now, after = after, now
            return now.gather()


def main():
    assert 1 <= DEVICE.ranks <= WORLD.size
    assert not HOST.is_gpu
    count = 0
    # Once in a stream that does its work late, too: what an exchange forgets to wait for is then not there.
    for stream in (nullcontext(), DEVICE.stream()):
        rng = np.random.default_rng(WORLD.rank)
        with stream:
            count += halos(rng)
            several_fields_walls_and_components(rng)
    fields(np.random.default_rng(5))
    sealed(np.random.default_rng(WORLD.rank))
    refusals()
    heat()
    hp.print_root(f"all good {count}")


main()
