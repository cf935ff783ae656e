"""Run files, the layers of settings and the schemas of apps."""
