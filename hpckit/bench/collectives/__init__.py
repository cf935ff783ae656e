"""Collectives by every algorithm, against MPI's and torch's gloo; the table that `auto` reads."""
