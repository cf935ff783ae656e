"""How particles move: velocity Verlet, thermostats, barostats, minimization."""
