"""Compressible air: a slab and a box, what mixes, relaxes and is carried along, and the sweeps that both share."""
