"""The names of the fields of a box; constants and the halo are those of the slab (`kernels.euler.constants`)."""

RHO, RHO_U, RHO_V, RHO_W, RHO_THETA = range(5)  # the fields of a state, in this order
FIELDS = 5
WATCHED = 11  # numbers that `diagnose` returns
