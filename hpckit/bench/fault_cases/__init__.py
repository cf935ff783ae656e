"""The cases of `hpckit bench faults`: each breaks something on purpose and says what came of it."""
