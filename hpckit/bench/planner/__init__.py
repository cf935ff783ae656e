"""The planner of training against published steps, and against steps measured here."""
