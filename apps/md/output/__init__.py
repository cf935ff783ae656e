"""What a run of particles measures and writes: the trajectory, observables, and their charts and checks."""
