"""Fourier transforms on these ranks: `fourier_ranks.py FOLDER DTYPE...`: NumPy's values, and the bits of one rank."""

import sys
from pathlib import Path

import numpy as np

import hpckit as hp
from hpckit.comm.simulated_gpu import SimulatedGpu
from hpckit.errors import InputError
from hpckit.kernels.device_array import is_device_array

comm, folder = hp.world(), Path(sys.argv[1])
random = np.random.default_rng(5)
CASES = {
    "pencils": ((12, 10, 9), {"z": 0, "y": 0, "x": 1}),
    "bricks": ((12, 11, 10), {"z": 0, "y": 0, "x": 0}),
    "slabs": ((13, 7, 10), {"z": 0, "y": 1, "x": 1}),
    "last": ((5, 7, 16), {"z": 1, "y": 1, "x": 0}),
    "plane": ((9, 8), {"y": 0, "x": 0}),
    "four": ((7, 6, 5, 4), {"a": 0, "b": 0, "c": 1, "d": 1}),
}
for name, (shape, axes) in CASES.items():
    values = random.normal(size=shape)
    for dtype in sys.argv[2:]:
        whole = (values + 1j * values[::-1] if dtype.startswith("c") else values).astype(dtype)
        device = SimulatedGpu() if name in ("pencils", "bricks", "plane") and dtype != "float32" else None
        small = 1e-12 if dtype in ("float64", "complex128") else 2e-4
        with hp.Mesh(comm, **axes) as mesh:
            fft = hp.FFT(mesh, shape, dtype)
            mine = np.ascontiguousarray(whole[fft.layout.slices(mesh.rank)])
            spectrum = fft.forward(mine)
            exact = (np.fft.rfftn if fft.real else np.fft.fftn)(whole.astype("c16" if dtype[0] == "c" else "f8"))
            np.testing.assert_allclose(
                spectrum, exact[fft.spectrum.slices(mesh.rank)], rtol=0, atol=30 * small, err_msg=f"{name} {dtype}"
            )
            back = fft.backward(spectrum)
            assert back.dtype == whole.dtype
            np.testing.assert_allclose(back, mine, rtol=0, atol=small, err_msg=f"{name} {dtype}")
            three = np.stack([mine, 2 * mine, mine[::-1]])
            spectra = fft.forward(three)
            np.testing.assert_array_equal(spectra[0], spectrum)
            np.testing.assert_array_equal(fft.backward(spectra)[0], back)
            np.testing.assert_allclose(fft.backward(spectra), three, rtol=0, atol=2 * small)
            copied = hp.FFT(mesh, shape, dtype, hp.plan.Layout(shape, mesh.topology))
            np.testing.assert_array_equal(copied.forward(whole)[fft.spectrum.slices(mesh.rank)], spectrum)
            if device is not None:
                there = fft.forward(device.to_device(mine))
                assert is_device_array(there)
                np.testing.assert_array_equal(device.to_host(there), spectrum)
                np.testing.assert_array_equal(device.to_host(fft.backward(there)), back)
            # Parseval, with conjugates that are left out; and frequencies as NumPy has them.
            power = comm.allreduce(float((fft.weights() * np.abs(spectrum.astype("c16")) ** 2).sum())) / whole.size
            np.testing.assert_allclose(power, (np.abs(whole.astype("c16")) ** 2).sum(), rtol=30 * small)
            for dim, found in enumerate(fft.frequencies(0.5)):
                half = fft.real and dim == len(shape) - 1
                every = (np.fft.rfftfreq if half else np.fft.fftfreq)(shape[dim], 0.5)
                np.testing.assert_array_equal(found.ravel(), every[fft.spectrum.slices(mesh.rank)[dim]])
            for wrong in (mine[..., :0], mine.reshape(-1)):
                try:
                    fft.forward(wrong)
                except InputError:
                    continue
                assert wrong.shape == mine.shape
            whole_spectrum, whole_back = (
                hp.tensors.Tensor(mesh, layout, each).full()
                for layout, each in ((fft.spectrum, spectrum), (fft.layout, back))
            )
        if comm.rank == 0:
            file = folder / f"{name}-{dtype}.npz"
            if comm.size == 1:
                np.savez(file, spectrum=whole_spectrum, back=whole_back)
            else:
                with np.load(file) as one:
                    np.testing.assert_array_equal(whole_spectrum, one["spectrum"], err_msg=f"{name} {dtype}")
                    np.testing.assert_array_equal(whole_back, one["back"], err_msg=f"{name} {dtype}")
# The derivative and the inverse Laplacian of a field on its own grid.
with hp.Mesh(comm, y=0, x=0, periodic=("y", "x")) as mesh:
    shape, spacing = (24, 30), (2 * np.pi / 24, 2 * np.pi / 30)
    field = hp.Field.zeros(mesh, hp.Decomposition(shape, mesh.topology, halo=1))
    y, x = field.coords(spacing)
    field.interior[...] = np.sin(3 * x) * np.cos(2 * y)
    fft = hp.FFT(mesh, shape)
    ky, kx = (2 * np.pi * each for each in fft.frequencies(spacing))
    spectrum = fft.forward(field.interior)
    np.testing.assert_allclose(fft.backward(1j * kx * spectrum), 3 * np.cos(3 * x) * np.cos(2 * y), atol=1e-12)
    square = np.where((kx == 0) & (ky == 0), np.inf, kx**2 + ky**2)
    np.testing.assert_allclose(fft.backward(spectrum / square), np.sin(3 * x) * np.cos(2 * y) / 13, atol=1e-13)
