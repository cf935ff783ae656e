"""What safeguards and records cost: watch, checks, trace, checkpoints."""
