"""The sweeps that slab and box share: along x and across it, in vectors on a core and by threads of a GPU."""
