"""Pipelines: stages of layers, executed as the plan of a step says, on any mesh."""
