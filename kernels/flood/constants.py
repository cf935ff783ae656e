"""Numbers that all forms of the flood kernels share."""

HALO = 2  # cells that a stage looks to each side: a face knows two cells on both sides
H, HU, HV = range(3)  # what the state holds: depth, momentum along x and y
RATE, DEPTH_MIN = range(2)  # of what `stage` returns
MASS, ENERGY, SPEED, DEPTH_MAX, WET, BROKEN = range(6)  # of what `diagnose` returns
ROUNDING = 1e-9  # depths less than nothing by so little of the dry depth are nothing
STILL = 1e-30  # speed of waves, m/s, that is none: the reciprocal of a subnormal one is no number
