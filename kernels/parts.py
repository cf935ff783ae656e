"""Parts of a grid that a kernel is asked for, so that a halo can travel while cells that need none are computed.

WHOLE is everything. INNER comes before the halo and does cells that need none, as many as suit the kernel: all, some or
none; OUTER comes after the halo, with the same arguments, and does the rest.
"""

WHOLE, INNER, OUTER = range(3)
