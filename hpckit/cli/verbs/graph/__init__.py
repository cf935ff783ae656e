"""The verb `graph`: task graphs on Slurm or on this machine."""
