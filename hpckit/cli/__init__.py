"""The front end: verbs, run files, launch, terminal."""
