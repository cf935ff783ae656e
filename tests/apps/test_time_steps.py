"""Steps and frames are counted by arithmetic, exactly as the time loops meet them, and absurd counts are refused."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from hpckit.apps.diffusion import config as diffusion
from hpckit.apps.diffusion.layout import dry_run as diffusion_dry_run
from hpckit.apps.shallow_water import config as shallow_water
from hpckit.apps.shallow_water.layout import dry_run as shallow_water_dry_run
from hpckit.apps.weather import config as weather
from hpckit.apps.weather.layout import dry_run as weather_dry_run
from hpckit.apps.weather3d import config as weather3d
from hpckit.apps.weather3d.layout import dry_run as weather3d_dry_run
from hpckit.errors import InputError
from hpckit.run.steps import frame_count, is_frame, step_count


@pytest.mark.parametrize("end", [0.0, 0.2, 7.0, 10.0, 99.9])
@pytest.mark.parametrize("every", [1e-300, 0.1, 0.3, 1.0, 2.0, 3.7, 1e9])
@pytest.mark.parametrize("dt", [0.1, 0.3, 0.5, 1.0, 2.5])
def test_frames_are_those_of_the_loop(end, every, dt):
    config = SimpleNamespace(time=SimpleNamespace(end=end), output=SimpleNamespace(every=every))
    steps = step_count(config, dt)
    met = 1 + sum(is_frame(config, dt, step, steps) for step in range(1, steps + 1))
    assert frame_count(config, dt, steps) == met


APPS = [
    (weather, weather_dry_run),
    (weather3d, weather3d_dry_run),
    (shallow_water, shallow_water_dry_run),
    (diffusion, diffusion_dry_run),
]


@pytest.mark.parametrize(("app", "dry_run"), APPS)
def test_a_plan_of_many_steps_takes_no_time_and_absurd_ones_are_refused(app, dry_run):
    plan = dry_run(app.Config.model_validate({"time": {"end": 1e13}}), 2)
    assert plan.steps > 1e10
    with pytest.raises(InputError, match="steps: a run has at most"):
        dry_run(app.Config.model_validate({"time": {"end": 1e300}}), 2)


def test_large_grids_are_planned_without_their_memory():
    plan = weather_dry_run(weather.Config.model_validate({"grid": {"nx": 10**8, "nz": 10**9}}), 2)
    assert plan.memory_per_rank > 1e17


@pytest.mark.parametrize("time", [{}, {"steps": 3}])
def test_cells_too_small_for_a_time_step_are_refused(time):
    config = diffusion.Config.model_validate({"grid": {"shape": [3, 3], "lengths": [1e-300, 1.0]}, "time": time})
    with pytest.raises(InputError, match="the time step would be 0 s"):
        diffusion_dry_run(config, 1)
