"""Verbs that make files of the output of a run."""
