"""The verbs of serving: `generate` and `serve`."""
