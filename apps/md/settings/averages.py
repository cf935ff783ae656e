"""Settings of what is taken from columns of the thermo table over steps: means, profiles, histograms, correlations."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from hpckit.apps.md.motion.groups import ALL, Axis
from hpckit.io.settings import Section

# What each particle has for profiles, computes that reduce and their formulas, beside c_NAME and v_NAME of particles.
OF_PARTICLES = ("id", "type", "mass", "x", "y", "z", "vx", "vy", "vz", "fx", "fy", "fz", "q")
OF_BINS = ("density/number", "density/mass", "temp")


class Sampled(Section):
    """What has samples of columns after some steps."""

    name: str = Field(min_length=1, description="its name, behind f_")
    columns: tuple[str, ...] = Field(min_length=1, description="what is sampled; energies c_NAME are of all")
    every: int = Field(1, ge=1, description="steps between two samples")
    period: int = Field(
        1, ge=1, description="steps between two results: the last sample of each is at a multiple of it"
    )
    start: int = Field(0, ge=0, description="the first step that has a sample, of means a result")
    file: str = Field("", pattern=r"^([\w.-]*\w[\w.-]*)?$", description="a file in output/ for results; empty: none")

    def is_due(self, step: int, since: int) -> bool:
        """Whether a step has a sample of it, which began with the step `since`."""
        return step % self.every == 0 and step >= max(self.start, since)

    @property
    def has_rows(self) -> bool:
        """Whether a result has many rows: its values are f_NAME[row][column]."""
        return True

    @property
    def width(self) -> int:
        """The columns of a result."""
        return len(self.columns)


class Average(Sampled):
    """Means of columns over steps, as `fix ave/time` has them."""

    repeat: int = Field(1, ge=1, description="samples of a mean")
    last: int = Field(1, ge=0, description="means over the samples of that many periods; 0: of all so far")
    kept: bool = Field(False, description="keep all means: trap(f_NAME) and slope(f_NAME) in formulas are of them")
    mode: Literal["scalar", "vector"] = Field(
        "scalar",
        description="vector: of whole vectors c_NAME, and columns c_NAME[k] of tables as rdf: a mean for each row",
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.period % self.every or self.repeat * self.every > self.period:
            raise ValueError(
                f"{self.repeat} samples every {self.every} steps do not fit in {self.period} steps: period must be a"
                " multiple of every, and at least repeat times it"
            )
        if self.kept and self.has_rows:
            raise ValueError("means of many rows are not kept: omit kept, or mode")
        return self

    @property
    def has_rows(self) -> bool:
        """Whether a mean has many rows."""
        return self.mode == "vector"

    def ends(self, step: int) -> int:
        """The step of the mean of which this step is a sample, or -1."""
        end = -(-step // self.period) * self.period
        sampled = (end - step) % self.every == 0 and (end - step) // self.every < self.repeat
        return end if sampled else -1

    def is_due(self, step: int, since: int) -> bool:
        """Whether a step has a sample of a mean whose first one is not before `since`."""
        end = self.ends(step)
        return end >= self.start and end >= 0 and end - (self.repeat - 1) * self.every >= since


class Bins(Section):
    """Bins for particles, as `compute chunk/atom` has them."""

    along: tuple[Axis, ...] = Field((), max_length=3, description="dims along which they lie; empty: one for each type")
    widths: tuple[float, ...] = Field((), description="along each of these dims")
    origins: tuple[Literal["lower", "center", "upper"] | float, ...] = Field(
        (), description="where one begins along each: lower, center, upper, or a coordinate"
    )
    reduced: bool = Field(False, description="widths and coordinates are shares of the box, which may change")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if not len(self.along) == len(self.widths) == len(self.origins) or len({*self.along}) < len(self.along):
            raise ValueError("bins need different dims, and a width and an origin along each")
        if any(not width > 0 for width in self.widths):
            raise ValueError(f"bins need widths above 0, not {', '.join(map(str, self.widths))}")
        return self


class Profile(Average):
    """Means over the particles in bins, and over steps, as `fix ave/chunk` has them: columns are those of particles,
    density/number, density/mass and temp; a result has the places of bins, the number of particles, and these.
    """

    bins: Bins = Field(default_factory=Bins, description="the bins")
    group: str = Field(ALL, description="whose particles")
    per: Literal["all", "sample", "none"] = Field(
        "all",
        description="a mean is over all particles of all samples; over those of a sample, and then over samples; none:"
        " sums over particles",
    )

    @property
    def has_rows(self) -> bool:
        """A mean has a row for each bin."""
        return True

    @property
    def width(self) -> int:
        """The columns of a result."""
        return len(self.bins.along) + 1 + len(self.columns)


class Histogram(Average):
    """How often values are in bins, over steps, as `fix ave/histo` counts them: columns are those of particles, or
    numbers. A result has the places of bins, their counts, and these over all; f_NAME[1] to [4]: what is in the bins,
    what is beyond them, the least and the largest value.
    """

    group: str = Field(ALL, description="whose particles")
    low: float = Field(description="where the first bin begins")
    high: float = Field(description="where the last one ends")
    number: int = Field(20, ge=1, description="how many bins")
    beyond: Literal["ignore", "end", "extra"] = Field(
        "ignore", description="values beyond the bins: not counted, in the outermost bins, or in two more"
    )

    @model_validator(mode="after")
    def _holds(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"a histogram from {self.low:g} to {self.high:g} has no width")
        return self

    @property
    def has_rows(self) -> bool:
        """A result has a row for each bin."""
        return True

    @property
    def width(self) -> int:
        """The columns of a result."""
        return 3


PAIRS = {
    "auto": lambda a, b: a == b,
    "upper": lambda a, b: a < b,
    "lower": lambda a, b: a > b,
    "auto/upper": lambda a, b: a <= b,
    "auto/lower": lambda a, b: a >= b,
    "full": lambda a, b: True,
}  # of columns, the earlier and the later one


class Correlation(Sampled):
    """Correlations of columns in time, as `fix ave/correlate` has them: a result has a row for each lag: the lag in
    steps, the number of products, and the mean product of each pair.
    """

    lags: int = Field(1, ge=1, description="lags, from 0, in samples")
    kind: Literal["auto", "upper", "lower", "auto/upper", "auto/lower", "full"] = Field(
        "auto",
        description="pairs of a column before a lag and one after it: of a column with itself, or with others",
    )
    running: bool = Field(False, description="over all samples so far; else over those of a period")
    factor: float = Field(1.0, description="by which products are multiplied")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.period % self.every or (not self.running and self.period < (self.lags - 1) * self.every):
            raise ValueError(
                f"{self.lags} lags of {self.every} steps do not fit in {self.period} steps: period must be a multiple"
                " of every, and hold all lags unless correlations are running"
            )
        return self

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The columns of each product, from 0: the earlier and the later one."""
        every = range(len(self.columns))
        return [(a, b) for a in every for b in every if PAIRS[self.kind](a, b)]

    @property
    def width(self) -> int:
        """The columns of a result."""
        return 2 + len(self.pairs)
