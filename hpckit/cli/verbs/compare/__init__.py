"""The verb `compare`: two runs side by side."""
