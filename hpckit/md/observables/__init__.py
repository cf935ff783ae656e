"""Observables of particles: radial distribution, displacements, correlations, structure factor, profiles, speeds.

Each takes frames (`hpckit.plan.particles.snapshot.Snapshot`, or anything with its fields) by `add(frame)`, from a file
or during a run, and gives its `result()`. With a communicator the ranks share the work: every rank adds the same frame
and measures its block of the particles, `result(comm)` sums over the ranks.
"""

from hpckit.md.observables.correlation import TimeCorrelation
from hpckit.md.observables.measurements import Measured, Measurements
from hpckit.md.observables.profile import DensityProfile, RadialProfile
from hpckit.md.observables.radial import RadialDistribution
from hpckit.md.observables.speeds import SpeedDistribution
from hpckit.md.observables.structure import StructureFactor

__all__ = [
    "DensityProfile",
    "Measured",
    "Measurements",
    "RadialDistribution",
    "RadialProfile",
    "SpeedDistribution",
    "StructureFactor",
    "TimeCorrelation",
]
