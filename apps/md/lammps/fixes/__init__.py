"""The fixes of input scripts."""
