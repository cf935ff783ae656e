"""Numbers that all forms of the cell kernels share."""

CLUSTER = 8  # slots of a cluster
RECORD = 4  # numbers of a slot: x, y, z, w
FAR = 1e8  # where slots without a particle lie: beyond every reach, and each somewhere else
FAR_STEP = 1e3
