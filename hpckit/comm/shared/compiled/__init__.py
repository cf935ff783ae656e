"""Collectives of the ranks of a node on shared memory: flags, reductions, and one compiled call a collective."""
