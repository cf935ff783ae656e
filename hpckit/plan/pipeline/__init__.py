"""Schedules and programs of pipelines: proofs, prices and drawings."""
