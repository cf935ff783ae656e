"""Verbs that make files of the output of a run, or look after its checkpoints."""
