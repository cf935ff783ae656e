"""What a program gets for one run: directory, steps, checkpoints, progress and guards."""
