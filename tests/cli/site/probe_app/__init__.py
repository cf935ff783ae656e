"""An app of another package, as `hpckit run` finds it by its entry point: it fails in every way on demand."""
