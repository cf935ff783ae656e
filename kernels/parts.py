"""Parts of a grid for a kernel call, so that the halo travels while cells that do not need it are computed.

WHOLE is everything. INNER runs before the halo arrives, on as many of the cells that do not need it as suit the kernel
(all, some or none); OUTER runs after it, with the same arguments, on the rest.
"""

WHOLE, INNER, OUTER = range(3)
