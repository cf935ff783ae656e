"""Motion of particles: kicks and drifts of velocity Verlet, wrapping into a periodic box, kinetic sums."""
