"""The validation suite: runs of the weather apps beside exact solutions and published numbers."""
