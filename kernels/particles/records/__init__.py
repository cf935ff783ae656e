"""Records of particles: x, y, z and w, four numbers side by side; w carries the type."""
