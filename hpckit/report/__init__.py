"""The report of a run: one HTML file with inline pictures, and the same numbers as JSON."""
