"""The Lennard-Jones potential."""
