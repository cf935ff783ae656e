"""How the particles of a run move: settings, dynamics, stages."""
