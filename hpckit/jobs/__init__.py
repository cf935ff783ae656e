"""Batch jobs: the site's habits, job scripts, Slurm's commands, and graphs of tasks."""
