"""The interaction of the settings: parameters of all pairs of types, mixed or given."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.apps.md.config import Config
from hpckit.apps.md.settings.interaction import mixed_length
from hpckit.errors import InputError
from hpckit.io.particles.lammps_eam import EamFile, read_eam
from hpckit.io.particles.lammps_snap import read_snap
from hpckit.io.particles.lammps_sw import read_sw
from hpckit.io.particles.lammps_table import read_lammps_table
from hpckit.io.particles.lammps_tersoff import read_tersoff
from hpckit.kernels.particles.granular.reference import Contact
from hpckit.kernels.particles.lennard_jones import dispatch as lennard_jones
from hpckit.kernels.particles.pair.custom import make_potential, tails
from hpckit.kernels.particles.pair.named import NAMED
from hpckit.md.bridges.ase_potential import AsePotential
from hpckit.md.bridges.brick import BrickPotential
from hpckit.md.external.coupling import SoftPairs
from hpckit.md.granular.contacts import Spheres
from hpckit.md.interaction import Interaction, tabulated
from hpckit.md.many_body.embedded import EmbeddedAtoms, embedded_atoms
from hpckit.md.many_body.snap import SnapPotential
from hpckit.md.many_body.stillinger_weber import StillingerWeber
from hpckit.md.many_body.tersoff import TersoffBonds

FAR = 1e6  # farther than any partner


Potential = (
    Interaction
    | EmbeddedAtoms
    | StillingerWeber
    | TersoffBonds
    | SnapPotential
    | BrickPotential
    | AsePotential
    | Spheres
)


def interaction_of(config: Config, types: int) -> Potential:
    """The potential with the parameters of all pairs of that many types.

    Raises `InputError` for a missing function, and for parameters that do not fit.
    """
    given = config.interaction
    for pair in given.pairs:
        if max(pair.types) > types:
            raise InputError(f"interaction.pairs name types {list(pair.types)}: there are 1 to {types}")
    if given.kind == "lennard_jones" and len(given.epsilon) != types:
        raise InputError(
            f"interaction.epsilon and sigma are of {len(given.epsilon)} types, and there are {types}",
            do="give one of each for every type",
        )
    if config.coupling.types:
        return soft_pairs(config, types).at(config.coupling.states[0])
    if given.kind == "lennard_jones" and not given.switch:
        return _lennard_jones(config, types)
    if given.kind == "table":
        return _tabulated(config, types)
    if given.kind == "eam":
        return _embedded(config, types)
    if given.kind == "stillinger_weber":
        return _tetrahedra(config, types)
    if given.kind == "tersoff":
        return TersoffBonds(read_tersoff(_file_of_elements(config, types), given.elements))
    if given.kind == "snap":
        return _snap(config, types)
    if given.kind == "granular":
        spheres = _spheres(config)
        if spheres.types != types:
            raise InputError(f"granular.diameters has {spheres.types} types, and there are {types}")
        return spheres
    if given.kind == "brick":
        return BrickPotential(load_function(given.function or ""), given.cutoff, types)
    if given.kind == "ase":
        _require_elements(config, types)
        return AsePotential(load_function(given.function or ""), given.elements, given.cutoff)
    if given.kind == "python":
        energy, names = load_function(given.function or ""), None
    else:
        energy, names = NAMED[given.kind]
    own = _well_parameters(config) if given.kind == "lennard_jones" else _own_parameters(config, types, names)
    found = custom(
        energy,
        own,
        _cutoffs(config, types),
        name=given.kind,
        force=load_function(given.force) if given.force else None,
        shift=given.shift,
        tail=given.tail,
        switch=given.switch,
    )
    if given.kind == "lennard_jones":  # traced for GPUs and lists of neighbors, by hand for pairs of clusters
        return replace(found, potential=replace(found.potential, by_inverse=lennard_jones.FADED))
    return found


def soft_pairs(config: Config, types: int) -> SoftPairs:
    """Lennard-Jones pairs of which those of the coupled types fade. Raises `InputError` for unknown types."""
    given, wells = config.coupling, _well_parameters(config)
    if not all(1 <= kind <= types for kind in given.types):
        raise InputError(f"coupling.types is {list(given.types)}, but there are types 1 to {types}")
    coupled = np.isin(np.arange(types) + 1, given.types)
    what = _cutoffs(config, types), coupled, given.softness, given.power, config.interaction.shift
    return SoftPairs(wells[..., 0], wells[..., 1], *what)


def reaches(config: Config) -> list[float]:
    """The cutoffs of the settings, of embedded atoms that of their file."""
    given = config.interaction
    if given.kind == "eam":
        return [_eam_file(config).cutoff]
    if given.kind == "stillinger_weber":
        return [_tetrahedra(config, len(given.elements)).cutoff]
    if given.kind == "tersoff":
        return [read_tersoff(_file_of_elements(config, len(given.elements)), given.elements).cutoff]
    if given.kind == "snap":
        return [_snap(config, len(given.elements)).cutoff]
    if given.kind == "granular":
        return [max(config.granular.diameters)]
    if given.kind == "ase":
        return [2.0 * given.cutoff]
    charges = [config.coulomb.cutoff] if config.coulomb.kind != "none" else []
    return [given.cutoff, *charges, *(pair.cutoff for pair in given.pairs if pair.cutoff is not None)]


def calculator(
    symbols: Sequence[str], comm: MPI.Intracomm = MPI.COMM_SELF, repro: bool = False, **interaction: Any
) -> Any:
    """Hpckit as a calculator of ASE: a potential with the settings of `[interaction]` of a run file, for types that are
    these chemical symbols: `calculator(["Cu"], kind="eam", file="Cu_u3.eam")`. See `hpckit.md.bridges.calculator`.

    Raises `InputError` for settings that do not fit.
    """
    from hpckit.md.bridges.calculator import Calculator

    fractions = [1.0 / len(symbols)] * len(symbols)
    config = Config.model_validate(
        {"system": {"masses": [1.0] * len(symbols), "fractions": fractions}, "interaction": interaction}
    )
    return Calculator(interaction_of(config, len(symbols)), symbols, comm, repro)


def masses_of(config: Config) -> np.ndarray:
    """The mass of each type: of the settings, else of the file of the potential, else 1."""
    given = config.system
    if config.interaction.kind == "granular":
        return _spheres(config).masses
    if given.masses:
        return np.array(given.masses)
    if config.interaction.kind == "eam":
        file, names = _eam_file(config), config.interaction.elements
        chosen = [file.elements.index(name) for name in names if name in file.elements]
        return file.masses[chosen] if names else file.masses
    return np.ones(len(given.fractions))


def _eam_file(config: Config) -> EamFile:
    assert config.interaction.file is not None  # the settings guarantee it
    return read_eam(config.interaction.file)


def _spheres(config: Config) -> Spheres:
    given = config.granular
    contact, still = Contact(*given.stiffness, *given.damping, given.friction), [kind - 1 for kind in given.still]
    return Spheres(contact, np.array(given.diameters), np.array(given.densities), given.law, given.memory, still)


def _snap(config: Config, types: int) -> SnapPotential:
    given, file = config.interaction, _file_of_elements(config, types)
    assert given.parameters_file is not None  # the settings guarantee it
    zbl = (given.zbl[0], given.zbl[1]) if given.zbl else None
    return SnapPotential(read_snap(file, given.parameters_file, given.elements, zbl, given.nuclei))


def _tetrahedra(config: Config, types: int) -> StillingerWeber:
    return StillingerWeber(read_sw(_file_of_elements(config, types), config.interaction.elements), types)


def _file_of_elements(config: Config, types: int) -> Path:
    """The file of a potential that has an element for each type."""
    assert config.interaction.file is not None  # the settings guarantee it
    _require_elements(config, types)
    return Path(config.interaction.file)


def _require_elements(config: Config, types: int) -> None:
    given = config.interaction.elements
    if len(given) != types:
        raise InputError(
            f"interaction.elements names {len(given)} types, but there are {types}", do="give one for each"
        )


def _embedded(config: Config, types: int) -> EmbeddedAtoms:
    found = embedded_atoms([_eam_file(config)], config.interaction.elements)
    if found.types != types:
        raise InputError(
            f"{config.interaction.file} gives embedded atoms of {found.types} types, and there are {types}",
            do="give interaction.elements, one for each type (of a funcfl file its name without ending, for each)",
        )
    return found


def custom(
    energy: Callable,
    own: np.ndarray,
    cutoffs: np.ndarray,
    *,
    name: str = "python",
    force: Callable | None = None,
    shift: bool = False,
    tail: bool = False,
    switch: float = 0.0,
) -> Interaction:
    """An interaction by a function energy(r2, parameters): own [types, types, parameters], cutoffs [types, types].

    The function is tried on numbers first: `InputError` if it fails or returns something else than a number.
    """
    shifts = np.zeros_like(cutoffs)
    found = np.zeros((*cutoffs.shape, 2))
    for place in np.ndindex(cutoffs.shape):
        edge = _try(energy, name, float(cutoffs[place]) ** 2, tuple(map(float, own[place])))
        shifts[place] = edge if shift else 0.0
        if tail:
            found[place] = tails(energy, own[place], float(cutoffs[place]))
    try:
        potential = make_potential(name, energy, own.shape[2], force, switched=switch > 0)
    except TypeError as error:
        raise InputError(
            f"the function {getattr(energy, '__name__', name)} cannot be compiled: {error}",
            likely="it is vectorized over pairs, which cannot branch one by one",
            do="write it with + - * / **, math.sqrt, math.exp, math.log, max, min and functions of your own that do"
            " the same; use max and min in place of `if`",
        ) from error
    columns = [cutoffs[..., None] ** 2, shifts[..., None], own]
    if switch:
        columns.append(np.full((*cutoffs.shape, 1), switch**2))
    table = np.concatenate(columns, axis=2)
    return Interaction(potential, table, found[..., 0], found[..., 1]) if tail else Interaction(potential, table)


def load_function(place: str) -> Callable:
    """The function at `file.py:name`. Raises `InputError`."""
    file, _, name = place.rpartition(":")
    path = Path(file)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise InputError(
            f"there is no Python file {file!r}", do="interaction.function = 'file.py:name of the function'"
        )
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(f"{file} cannot be loaded: {type(error).__name__}: {error}") from error
    function = getattr(module, name, None)
    if not callable(function):
        there = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise InputError(f"{file} has no function {name!r}", likely=f"it has {', '.join(there) or 'none'}")
    return function


def _try(energy: Callable, name: str, r2: float, parameters: tuple[float, ...]) -> float:
    try:
        value = float(energy(r2, parameters))
    except Exception as error:
        raise InputError(
            f"the potential {name} fails at r2 = {r2:g} with parameters {list(parameters)}: {error}",
            do="energy(r2, parameters) takes a squared distance and the numbers of interaction.parameters",
        ) from error
    if not np.isfinite(value):
        raise InputError(f"the potential {name} is {value} at r2 = {r2:g} with parameters {list(parameters)}")
    return value


def _lennard_jones(config: Config, types: int) -> Interaction:
    given, wells, cutoffs = config.interaction, _well_parameters(config), _cutoffs(config, types)
    epsilon, sigma = wells[..., 0], wells[..., 1]
    table = lennard_jones.parameters(epsilon, sigma, cutoffs, given.shift)
    if not given.tail:
        return Interaction(lennard_jones.POTENTIAL, table)
    each = [lennard_jones.tail(*one) for one in zip(epsilon.flat, sigma.flat, cutoffs.flat, strict=True)]
    energies, virials = np.array(each).T.reshape(2, *cutoffs.shape)
    return Interaction(lennard_jones.POTENTIAL, table, energies, virials)


def _tabulated(config: Config, types: int) -> Interaction:
    given = config.interaction
    keywords = {place: given.keyword for place in np.ndindex(types, types)}
    for pair in given.pairs:
        if pair.keyword is not None:
            keywords |= dict.fromkeys(_both(pair.types), pair.keyword)
    assert given.file is not None  # the settings guarantee it
    read = {keyword: read_lammps_table(given.file, keyword) for keyword in sorted(set(keywords.values()))}
    tables = [[read[keywords[a, b]] for b in range(types)] for a in range(types)]
    cutoffs = _cutoffs(config, types)
    return tabulated(tables, cutoffs, points=given.points, interpolation=given.interpolation, shift=given.shift)


def _well_parameters(config: Config) -> np.ndarray:
    """Epsilon and sigma of all pairs, mixed unless given: [types, types, 2]."""
    given = config.interaction
    depths, diameters = _mixed(config, given.epsilon, given.sigma)
    for pair in given.pairs:
        for place in _both(pair.types):
            depths[place] = depths[place] if pair.epsilon is None else pair.epsilon
            diameters[place] = diameters[place] if pair.sigma is None else pair.sigma
    return np.stack([depths, diameters], axis=-1)


def _mixed(config: Config, epsilon: Sequence[float], sigma: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Depths and diameters of all pairs of types by the mixing rule."""
    depths, diameters = np.sqrt(np.multiply.outer(epsilon, epsilon)), np.array(sigma)
    mixed = mixed_length(config.interaction.mixing, diameters[:, None], diameters)
    if config.interaction.mixing == "sixth_power":
        depths *= np.multiply.outer(diameters, diameters) ** 3 / mixed**6
    return depths, mixed


def fourth_parameters(config: Config) -> np.ndarray:
    """The table of `lennard_jones` for the ends of CHARMM's dihedrals, at every distance."""
    given = config.interaction
    mixed = _mixed(config, given.epsilon_14 or given.epsilon, given.sigma_14 or given.sigma)
    return lennard_jones.parameters(*mixed, np.full_like(mixed[0], FAR), False)


def _own_parameters(config: Config, types: int, names: tuple[str, ...] | None) -> np.ndarray:
    """The parameters of other potentials: [types, types, parameters]."""
    given = config.interaction
    each: dict[Any, tuple[float, ...]] = {place: given.parameters for place in np.ndindex(types, types)}
    for pair in given.pairs:
        if pair.parameters is not None:
            each |= dict.fromkeys(_both(pair.types), pair.parameters)
    lengths = {len(one) for one in each.values()}
    wanted = len(names) if names is not None else next(iter(lengths))
    if lengths != {wanted}:
        said = ", ".join(names) if names else "the same number for all pairs of types"
        raise InputError(
            f"interaction.parameters of {given.kind} are {said}: {wanted} numbers, not {sorted(lengths)}",
            do="give interaction.parameters, or parameters of every pair in interaction.pairs",
        )
    return np.array([each[place] for place in np.ndindex(types, types)], float).reshape(types, types, wanted)


def _cutoffs(config: Config, types: int) -> np.ndarray:
    given = config.interaction
    cutoffs = np.full((types, types), given.cutoff)
    for pair in given.pairs:
        if pair.cutoff is not None:
            for place in _both(pair.types):
                cutoffs[place] = pair.cutoff
    return cutoffs


def _both(types: tuple[int, int]) -> list[tuple[int, int]]:
    first, second = types[0] - 1, types[1] - 1
    return [(first, second), (second, first)]
