"""The output of a weather model: deviations from the base state, the base state itself, and full fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from hpckit.apps.atmosphere.base import BaseState
from hpckit.kernels.euler.constants import C0, GAMMA, RD

Array = np.ndarray

DEVIATIONS: dict[str, dict[str, str]] = {
    "theta": {
        "units": "K",
        "units_metadata": "temperature: difference",
        "long_name": "potential temperature, deviation from the base state",
        "comment": "theta + theta_base is the potential temperature",
    },
    "u": {"units": "m s-1", "long_name": "wind along x", "standard_name": "x_wind"},
    "v": {"units": "m s-1", "long_name": "wind along y", "standard_name": "y_wind"},
    "w": {"units": "m s-1", "long_name": "vertical wind", "standard_name": "upward_air_velocity"},
    "rho": {
        "units": "kg m-3",
        "long_name": "density, deviation from the base state",
        "comment": "rho + rho_base is the density",
    },
}
FULL: dict[str, dict[str, str]] = {
    "theta_total": {
        "units": "K",
        "units_metadata": "temperature: on_scale",
        "long_name": "potential temperature",
        "standard_name": "air_potential_temperature",
    },
    "temperature": {
        "units": "K",
        "units_metadata": "temperature: on_scale",
        "long_name": "temperature",
        "standard_name": "air_temperature",
    },
    "pressure": {"units": "Pa", "long_name": "pressure", "standard_name": "air_pressure"},
}


def variables(winds: str, asked: Iterable[str]) -> dict[str, dict[str, str]]:
    """The variables of a model with these winds ("uw", "uvw") and the full fields that are asked for."""
    left_out = set("uvw") - set(winds)
    return {name: it for name, it in DEVIATIONS.items() if name not in left_out} | {name: FULL[name] for name in asked}


def full_fields(asked: Iterable[str], rho: Array, rho_theta: Array) -> dict[str, Array]:
    """Full fields from density and rho theta (deviation and base state together), any shape.

    Of moist air with the moist theta: from (1 + R_v / R_d q_v) rho of dry air.
    """
    made = {
        "theta_total": lambda: rho_theta / rho,
        "temperature": lambda: C0 * rho_theta**GAMMA / (RD * rho),
        "pressure": lambda: C0 * rho_theta**GAMMA,
    }
    return {name: made[name]() for name in asked}


def in_precision(fields: Mapping[str, Array], single: bool) -> dict[str, Array]:
    """The fields as the files hold them."""
    dtype = np.float32 if single else np.float64
    return {name: np.ascontiguousarray(values, dtype) for name, values in fields.items()}


def base_profiles(base: BaseState) -> Mapping[str, Mapping[str, Any]]:
    """The base state over height, as constants of the file."""
    rho, _, pressure = base.column
    rows = {"theta_base": (base.theta, "K"), "rho_base": (rho, "kg m-3"), "pressure_base": (pressure, "Pa")}
    names = {"theta_base": "potential temperature", "rho_base": "density", "pressure_base": "pressure"}
    return {
        name: {"dims": ("z",), "values": values, "units": unit, "long_name": f"{names[name]} of the base state"}
        for name, (values, unit) in rows.items()
    }
