"""The slab: x and z."""
