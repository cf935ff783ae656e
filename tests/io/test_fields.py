"""Fields on disk: values, metadata, readers, and what a kill leaves behind."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
from conftest import PROGRAMS, by_day, mpi_command, mpiexec, wait_until
from lone import LoneMesh
from mpi4py import MPI

from hpckit.apps.atmosphere.output import variables
from hpckit.apps.weather3d import config as weather3d
from hpckit.apps.weather3d.run import altitudes
from hpckit.cli.main import main
from hpckit.errors import CorruptDataError, InputError, SetupError
from hpckit.grid.cubed_sphere import CubedSphere
from hpckit.io import FieldWriter, open_fields
from hpckit.io.fields.hdf5 import CHUNK_BYTES, chunk_shape
from hpckit.io.fields.profiles import ProfileWriter
from hpckit.io.fields.writer import choose_driver
from hpckit.plan.grid.decomposition import Decomposition

pytestmark = pytest.mark.usefixtures("quick_ranks")

TIMES = [0.0, 2.5, 10.0]
N = 7  # both dims alike, so that no reader can tell them apart by size
Z, X = 100.0 * np.arange(N) + 350.0, 250.0 * np.arange(N) + 125.0


def write_slab(directory, mesh, driver="shards", z=None, **options):
    """Three frames of a (z, x) slab whose values name frame, z and x; returns the array (t, z, x)."""
    cells = Decomposition((N, N), mesh.topology, halo=(0, 2))
    values = np.arange(3 * N * N).reshape(3, N, N) / 3.0
    coords = {"z": Z if z is None else z, "x": X}
    variables = {"theta": {"units": "K", "long_name": "potential temperature"}}
    attributes = {"title": "a slab", "ranks": 1, "versions": {"numpy": "2"}}
    units = {"z": "m", "x": "m"}
    options = {"constants": {"profile": {"dims": ("z",), "values": coords["z"] ** 2, "units": "m2"}}, **options}
    with FieldWriter(mesh, directory, cells, coords, units, variables, attributes, driver=driver, **options) as writer:
        for t, frame in zip(TIMES, values, strict=True):
            writer.write(t, {"theta": frame})
    return values


@pytest.mark.parametrize("ranks", by_day([1, 2, 3, 4], 3))
def test_values_come_back_bitwise(mpirun, tmp_path, ranks):
    outcome = mpirun(ranks, "io_fields.py", tmp_path)
    assert '"ok": true' in outcome.stdout


def test_mpio_driver(mpirun, tmp_path):
    if not h5py.get_config().mpi:
        pytest.skip("this h5py is built without MPI (h5py.get_config().mpi is False)")
    assert '"mpio": true' in mpirun(2, "io_fields.py", tmp_path).stdout


def alone(path: Path, folder: Path) -> Path:
    """A copy of one file, far from what stood beside it."""
    folder.mkdir(exist_ok=True)
    return Path(shutil.copy(path, folder))


def require_values(path: Path, values, engine="h5netcdf"):
    """The file holds the slab, and opens by itself as any CF file does."""
    xarray = pytest.importorskip("xarray")
    with xarray.open_dataset(path, engine=engine) as fields:
        assert fields["theta"].dims == ("time", "z", "x")
        np.testing.assert_array_equal(fields["theta"].values, values)
        since = fields["time"].values - np.datetime64("2000-01-01")
        np.testing.assert_array_equal(since / np.timedelta64(1, "ms"), 1e3 * np.array(TIMES))
        np.testing.assert_array_equal(fields["x"].values, X)
        np.testing.assert_array_equal(fields["z"].values, Z)
        assert (fields["z"].attrs["units"], fields["z"].attrs["positive"]) == ("m", "up")
        assert fields["theta"].attrs == {"units": "K", "long_name": "potential temperature"}
        assert fields["profile"].dims == ("z",)
        np.testing.assert_array_equal(fields["profile"].values, Z**2)
        assert fields.attrs["Conventions"] == "CF-1.11"
        assert fields.attrs["versions"] == '{"numpy": "2"}'


@pytest.mark.parametrize(
    ("driver", "engine"),
    by_day(
        itertools.product(["shards", "gather"], ["h5netcdf", "netcdf4"]), ("shards", "netcdf4"), ("gather", "h5netcdf")
    ),
)
def test_one_file_holds_everything(tmp_path, driver, engine, capsys):
    """A copy of it alone opens in xarray: written at the end, or packed later."""
    values = write_slab(tmp_path / "end", LoneMesh("z", "x"), driver)
    assert [path.name for path in (tmp_path / "end").iterdir()] == ["fields.h5"]
    require_values(alone(tmp_path / "end/fields.h5", tmp_path / "a"), values, engine)

    write_slab(tmp_path / "kept", LoneMesh("z", "x"), driver, one_file=0)
    require_values(tmp_path / "kept/fields.h5", values, engine)
    copy = alone(tmp_path / "kept/fields.h5", tmp_path / "b")
    with pytest.raises(CorruptDataError, match=r"frames/000000/frame\.h5") as caught:
        open_fields(copy)
    assert "hpckit pack" in caught.value.do
    assert main(["pack", str(tmp_path / "b")]) == CorruptDataError.exit_code
    for said in ("one file of", "one file already"):
        assert main(["pack", str(tmp_path / "kept")]) == 0
        assert said in capsys.readouterr().out
        assert [path.name for path in (tmp_path / "kept").iterdir()] == ["fields.h5"]
        require_values(alone(tmp_path / "kept/fields.h5", tmp_path / "b"), values, engine)
    assert main(["pack", str(tmp_path)]) == InputError.exit_code


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the checker, about its own
def test_the_file_follows_the_cf_conventions(tmp_path):
    """Neither errors nor warnings, for what the apps write: deviations, full fields, base state, faces."""
    checker = pytest.importorskip("compliance_checker.runner", reason="compliance-checker is not installed")
    mesh = LoneMesh("z", "y", "x", periodic=("x",))
    cells = Decomposition((8, 6, 7), mesh.topology)
    hill = weather3d.Config.model_validate(
        {"grid": {"nz": 8, "ny": 6, "nx": 7}, "dynamics": {"kind": "hevi"}, "terrain": {"kind": "bell", "height": 9.0}}
    )
    coords = {name: np.arange(n) + 0.5 for name, n in zip("zyx", cells.shape, strict=True)}
    with_faces = {"flux": {"units": "m s-1", "long_name": "a flux", "location": ("center", "center", "face")}}
    known = variables("uvw", ("theta_total", "temperature", "pressure")) | with_faces
    constants = {"theta_base": {"dims": ("z",), "values": coords["z"], "units": "K", "long_name": "of the base state"}}
    constants |= altitudes(hill)
    attributes, units = {"source": "hpckit tests"}, dict.fromkeys(coords, "m")
    with FieldWriter(mesh, tmp_path, cells, coords, units, known, attributes, constants=constants) as writer:
        for t in (0.0, 2.5):
            writer.write(t, {name: np.full(cells.shape, 300.0 + t, np.float32) for name in known})
    checker.CheckSuite.load_all_available_checkers()
    assert _faults(checker, tmp_path / "fields.h5") == []
    panels = Decomposition((6, 4, 4), LoneMesh("panel", "y", "x").topology)  # places without a length, as on a sphere
    coords = {name: np.arange(n) + 0.5 for name, n in zip(("panel", "y", "x"), panels.shape, strict=True)}
    folder, units = tmp_path / "panels", dict.fromkeys(coords, "1")
    about = {"h": {"units": "m", "long_name": "a depth"}}
    with FieldWriter(LoneMesh("panel", "y", "x"), folder, panels, coords, units, about) as writer:
        writer.write(0.0, {"h": np.ones(panels.shape)})
    found = _faults(checker, folder / "fields.h5")  # CF advises further dims before time, which no frame can have
    assert [one for part in found for one in part if "recommended order" not in one] == []
    profile = ProfileWriter(
        MPI.COMM_SELF,
        tmp_path / "profile.h5",
        "z",
        np.arange(3.0),
        "m",
        {"q": {"units": "1", "long_name": "a share"}},
        {},
    )
    profile.add(0.0, {"q": np.ones(3)})
    profile.write()
    assert _faults(checker, tmp_path / "profile.h5") == []


def _faults(checker, path):
    """What the CF checker finds in a file, errors and warnings."""
    path.with_suffix(".nc").symlink_to(path.name)  # the checker wants this name
    told = path.with_suffix(".json")
    checker.ComplianceChecker.run_checker(
        str(path.with_suffix(".nc")), ["cf:1.11"], 0, "strict", output_filename=str(told), output_format="json"
    )
    found = json.loads(told.read_text())["cf:1.11"]
    assert found["scored_points"] > 10
    return [one["msgs"] for one in found["all_priorities"] if one["value"][0] < one["value"][1]]


def test_writers_go_on_after_packing(tmp_path):
    """With all frames or with those of an earlier checkpoint, also where a kill left some files of packed frames."""
    mesh, cells = LoneMesh("z", "x"), Decomposition((N, N), LoneMesh("z", "x").topology)
    places = ({"z": Z, "x": X}, {"z": "m", "x": "m"}, {"q": {}})
    frame = np.arange(49.0).reshape(N, N)
    with FieldWriter(mesh, tmp_path, cells, *places, driver="shards") as writer:
        for t in range(4):
            writer.write(t, {"q": frame + 100 * t})
            if t == 1:
                kept = writer.kept()
        shutil.copytree(tmp_path / "frames", tmp_path / "before")
    for number in (1, 2):
        shutil.copytree(tmp_path / f"before/00000{number}", tmp_path / f"frames/00000{number}")
    (tmp_path / "frames/000001/rank-00000.h5").unlink()
    with pytest.raises(InputError, match="4 frames are in"):
        FieldWriter(mesh, tmp_path, cells, *places)
    with FieldWriter(mesh, tmp_path, cells, *places, append=True) as writer:
        writer.write(4.0, {"q": frame + 400})
        with open_fields(tmp_path) as live:
            assert "frames/" in live.attrs["values_in"]
            np.testing.assert_array_equal(live["q"].values, frame + 100 * np.arange(5)[:, None, None])
    with FieldWriter(mesh, tmp_path, cells, *places, resume=kept) as writer:
        writer.write(1.5, {"q": -frame})
    assert not (tmp_path / "frames").exists()
    with open_fields(tmp_path) as fields:
        np.testing.assert_array_equal(fields["q"].values, [frame, frame + 100, -frame])
        assert fields["time"].values.tolist() == [0.0, 1.0, 1.5]
        assert fields.attrs["frame_numbers"].tolist() == [0, 1, 5]
    with FieldWriter(mesh, tmp_path, cells, *places, append=True):
        pass  # nothing to add: the file stays, and no second copy of its frames
    assert sorted(path.name for path in tmp_path.iterdir()) == ["before", "fields.h5"]


def vtk_reader(path):
    hdf = pytest.importorskip("vtkmodules.vtkIOHDF")
    reader = hdf.vtkHDFReader()
    reader.SetFileName(str(path))
    reader.UpdateInformation()
    return reader


def cell_value(image, name, x, y, z):
    """The value of the cell that holds a point of space, as VTK finds it."""
    indices, weights = [0, 0, 0], [0.0, 0.0, 0.0]
    assert image.ComputeStructuredCoordinates((x, y, z), indices, weights)
    return image.GetCellData().GetArray(name).GetValue(image.ComputeCellId(indices))


@pytest.mark.parametrize("driver", ["shards", "gather"])
def test_vtk_opens_the_file(tmp_path, driver):
    values = write_slab(tmp_path, LoneMesh("z", "x"), driver)
    reader = vtk_reader(tmp_path / "fields.h5")
    assert reader.GetNumberOfSteps() == 3
    key = reader.GetOutputInformation(0).Get
    from vtkmodules.vtkCommonExecutionModel import vtkStreamingDemandDrivenPipeline as Pipeline

    assert list(key(Pipeline.TIME_STEPS())) == TIMES
    for step in range(3):
        reader.SetStep(step)
        reader.Update()
        image = reader.GetOutput()
        assert image.GetBounds() == (0.0, 1750.0, 300.0, 1000.0, 0.0, 0.0)
        for z in range(N):
            for x in range(N):  # x to the right, z upwards
                assert cell_value(image, "theta", X[x], Z[z], 0.0) == values[step, z, x]


@pytest.mark.parametrize("frames", [1, 2])
def test_vtk_volume_line_and_corners(tmp_path, frames):
    mesh = LoneMesh("z", "y", "x")
    cells = Decomposition((2, 3, 4), mesh.topology)
    coords = {"z": [10.0, 30.0], "y": [5.5, 6.5, 7.5], "x": [1.0, 3.0, 5.0, 7.0]}
    values, corners = np.arange(24.0).reshape(2, 3, 4), np.arange(60.0).reshape(3, 4, 5)
    variables = {"a": {}, "b": {"location": "face"}, "v": {"location": ("center", "face", "center")}}
    v = np.arange(32.0).reshape(2, 4, 4) ** 2
    with FieldWriter(mesh, tmp_path / "volume", cells, coords, {}, variables) as writer:
        for t in range(frames):
            writer.write(t, {"a": values, "b": corners, "v": v})
    reader = vtk_reader(tmp_path / "volume" / "fields.h5")
    reader.Update()
    image = reader.GetOutput()
    assert image.GetBounds() == (0.0, 8.0, 5.0, 8.0, 0.0, 40.0)
    assert cell_value(image, "a", 5.1, 6.4, 31.0) == values[1, 1, 2]
    assert cell_value(image, "v", 5.1, 6.4, 31.0) == 0.5 * (v[1, 1, 2] + v[1, 2, 2])  # the mean of two faces
    point = image.FindPoint(8.0, 6.0, 20.0)
    assert image.GetPointData().GetArray("b").GetValue(point) == corners[1, 1, 4]

    line = LoneMesh("x")
    cells = Decomposition((6,), line.topology)
    with FieldWriter(line, tmp_path / "line", cells, {"x": np.arange(6.0)}, {}, {"q": {}}) as writer:
        for t in range(frames):
            writer.write(t, {"q": np.arange(6.0) ** 2})
    reader = vtk_reader(tmp_path / "line" / "fields.h5")
    reader.Update()
    assert cell_value(reader.GetOutput(), "q", 4.2, 0.0, 0.0) == 16.0


def test_vtk_sees_uneven_levels_and_terrain(tmp_path):
    """Cells with the faces that were given, else halfway between centers; over terrain with corners of their own."""
    values = write_slab(tmp_path / "slab", LoneMesh("z", "x"), z=10.0 * 2.0 ** np.arange(N))
    reader = vtk_reader(tmp_path / "slab/fields.h5")
    reader.SetStep(1)
    reader.Update()
    grid = reader.GetOutput()
    levels = [grid.GetYCoordinates().GetValue(k) for k in range(N + 1)]  # y of VTK is the slab's z
    assert levels == [5.0, 15.0, 30.0, 60.0, 120.0, 240.0, 480.0, 800.0]
    array = grid.GetCellData().GetArray("theta")
    assert [array.GetValue(k) for k in range(N * N)] == values[1].ravel().tolist()

    cells = Decomposition((2, 3, 4), LoneMesh("z", "y", "x").topology)
    z, y, x = (np.arange(n + 1.0) for n in cells.shape)
    corners = np.stack(np.broadcast_arrays(x, y[:, None], z[:, None, None] + 0.1 * x), axis=-1)
    coords = {"z": [0.4, 1.6], "z_face": [0.0, 0.8, 2.4], "y": y[:3], "x": x[:4]}
    frame = np.arange(24.0).reshape(cells.shape)
    for name, given, height in (("flat", None, 2.4), ("hill", corners, 2.4)):
        with FieldWriter(
            LoneMesh("z", "y", "x"), tmp_path / name, cells, coords, {}, {"q": {}}, corners=given
        ) as writer:
            writer.write(0.0, {"q": frame})
        reader = vtk_reader(tmp_path / name / "fields.h5")
        reader.Update()
        grid = reader.GetOutput()
        assert grid.GetBounds()[5] == height
        assert [grid.GetCellData().GetArray("q").GetValue(k) for k in range(24)] == frame.ravel().tolist()
    assert [grid.GetPoint(k) for k in range(60)] == [tuple(point) for point in corners.reshape(-1, 3)]


@pytest.mark.nightly
@pytest.mark.parametrize("frames", by_day([1, 3], 3))
def test_vtk_sees_panels_as_one_sphere(tmp_path, frames):
    """Without cracks at the seams, before and after packing, and from a writer that goes on."""
    sphere = CubedSphere(6, 2.0)
    mesh, n = LoneMesh("panel", "y", "x"), sphere.n
    cells = Decomposition((6, n, n), mesh.topology)
    coords = {"panel": np.arange(6.0), "y": np.arange(float(n)), "x": np.arange(float(n))}
    values = np.arange(frames * 6.0 * n * n).reshape(frames, 6, n, n) ** 2
    for kept in (values[:1], values):
        with FieldWriter(
            mesh, tmp_path, cells, coords, {}, {"h": {}}, corners=sphere.corners, one_file=0, append=True
        ) as writer:
            for t, frame in enumerate(kept):
                writer.write(t, {"h": frame})
        for _ in range(2):
            reader = vtk_reader(tmp_path / "fields.h5")
            assert reader.GetNumberOfSteps() == len(kept)
            for step, frame in enumerate(kept):
                reader.SetStep(step)
                reader.Update()
                grid = reader.GetOutput()
                found = grid.GetCellData().GetArray("h")
                assert [found.GetValue(k) for k in range(6 * n * n)] == frame.ravel().tolist()
            points = np.array([grid.GetPoint(k) for k in range(grid.GetNumberOfPoints())])
            assert len(points) == 6 * n * n + 2  # Euler: as many points as cells, and two
            for number in (0, 3 * n * n + 7, 6 * n * n - 1):
                ids = grid.GetCell(number).GetPointIds()
                middle = points[[ids.GetId(k) for k in range(4)]].mean(axis=0)
                center = sphere.centers.reshape(3, -1)[:, number]
                assert middle @ center / np.linalg.norm(middle) > 0.999
            assert main(["pack", str(tmp_path)]) == 0
    with pytest.raises(InputError, match="corners have shape"):
        FieldWriter(mesh, tmp_path / "other", cells, coords, {}, {"h": {}}, corners=sphere.corners[:, 1:])


def test_datasets_are_compressed_and_checked(tmp_path):
    write_slab(tmp_path, LoneMesh("z", "x"), one_file=0)
    shard = tmp_path / "frames/000001/rank-00000.h5"
    with h5py.File(shard) as file:
        theta = file["theta"]
        assert (theta.compression, theta.shuffle, theta.fletcher32) == ("gzip", True, True)
        place = theta.id.get_chunk_info(0).byte_offset
    content = bytearray(shard.read_bytes())
    content[place + 3] ^= 1
    shard.write_bytes(content)
    with h5py.File(tmp_path / "fields.h5") as file, pytest.raises(OSError, match="read"):
        file["theta"][1]


def test_chunks_fit_the_cache():
    assert chunk_shape((5, 8), 8) == (5, 8)
    for shape in ((4096, 4096), (1, 300, 700), (300, 1, 70_000), (3, 400_000)):
        chunk = chunk_shape(shape, 8)
        assert np.prod(chunk) * 8 <= CHUNK_BYTES
        assert all(1 <= c <= n for c, n in zip(chunk, shape, strict=True))


def test_moved_directories_and_missing_files(tmp_path):
    pytest.importorskip("h5netcdf")
    values = write_slab(tmp_path / "run/output", LoneMesh("z", "x"), one_file=0)
    (tmp_path / "run").rename(tmp_path / "moved")
    with open_fields(tmp_path / "moved") as fields:
        np.testing.assert_array_equal(fields["theta"].values, values)
    (tmp_path / "moved/output/frames/000001/rank-00000.h5").unlink()
    with pytest.raises(CorruptDataError, match=r"frames/000001/rank-00000\.h5"):
        open_fields(tmp_path / "moved/output/fields.h5")
    with pytest.raises(InputError, match=r"no fields\.h5"):
        open_fields(tmp_path)


def test_reading_without_xarray_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(SetupError) as caught:
        open_fields(tmp_path)
    assert "analysis" in caught.value.do


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"variables": {}}, "at least one variable"),
        ({"variables": {"../x": {}}}, "cannot be called"),
        ({"variables": {"time": {}}}, "cannot be called"),
        ({"variables": {"x": {}}}, "both a variable and a dim"),
        ({"coords": {"x": np.arange(7.0)}}, "shape"),
        ({"coords": {}}, "no coordinates for x"),
        ({"coords": {"x": np.arange(8.0) ** 2}, "variables": {"u": {"location": "face"}}}, "not evenly spaced"),
        ({"driver": "adios"}, "no output driver"),
        ({"compression": 10}, "gzip level"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, change, message):
    mesh = LoneMesh("x")
    given = {"coords": {"x": np.arange(8.0)}, "units": {}, "variables": {"q": {}}, **change}
    with pytest.raises(InputError, match=message):
        FieldWriter(mesh, tmp_path, Decomposition((8,), mesh.topology), **given)
    assert not list(tmp_path.iterdir())


def test_automatic_driver():
    assert choose_driver("auto", 1, 1 << 30) == "gather"
    assert choose_driver("auto", 4, 1 << 10) == "gather"
    assert choose_driver("auto", 4, 1 << 30) == "shards"


def check_after_kill(directory: Path) -> float:
    """Every frame that the master shows is complete and right; returns the last time, or -1."""
    path = directory / "fields.h5"
    if not path.exists():
        return -1.0
    whole = np.arange(31.0 * 47.0).reshape(31, 47)
    with h5py.File(path) as file:
        times = file["time"][:]
        np.testing.assert_array_equal(times, np.arange(times.size))
        for place, t in enumerate(times):
            np.testing.assert_array_equal(file["q"][place], whole + 1e4 * t)
    return float(times[-1])


def wait_for_frame(directory: Path, after: float) -> None:
    wait_until(lambda: check_after_kill(directory) > after, "no frame was written")


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_killed_writer_harms_nothing(tmp_path):
    seed = random.randrange(10**6)
    print("seed", seed)
    instants = random.Random(seed)
    mesh = LoneMesh("z", "x")
    whole = np.arange(31.0 * 47.0).reshape(31, 47)
    last = -1.0
    for turn in range(24):
        child = os.fork()
        if child == 0:
            try:
                cells = Decomposition((31, 47), mesh.topology)
                coords = {"z": np.arange(31.0), "x": np.arange(47.0)}
                writer = FieldWriter(mesh, tmp_path, cells, coords, {}, {"q": {}}, driver="shards", append=True)
                for t in itertools.count(last + 1):
                    writer.write(t, {"q": whole + 1e4 * t})
            finally:
                os._exit(1)  # only a writer that failed comes here
        if turn % 3 == 2:  # at least now and then it comes to write a frame, however busy this machine is
            wait_for_frame(tmp_path, last)
        time.sleep(instants.uniform(0.0, 0.25))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), "the writer ended by itself"
        now = check_after_kill(tmp_path)
        assert now >= last
        last = now
    assert last > 0


def is_free(lock: Path) -> bool:
    """No process that holds the lock is left."""
    with open(lock) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


@pytest.mark.skipif(mpiexec() is None, reason="no mpiexec")
def test_killed_ranks_harm_nothing(tmp_path):
    last = -1.0
    output, lock = tmp_path / "output", tmp_path / "lock"
    for wait in (0.0, 0.2):
        begin = [sys.executable, "-m", "mpi4py", PROGRAMS / "io_forever.py", output, last + 1, lock]
        job = subprocess.Popen(mpi_command(2, *begin), start_new_session=True)
        try:
            wait_for_frame(output, last)
            time.sleep(wait)
            assert job.poll() is None, "the writer ended by itself"
        finally:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
        wait_until(lambda: is_free(lock), "ranks outlived their launcher")
        last = check_after_kill(output)
    assert last > 0
