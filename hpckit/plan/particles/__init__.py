"""Plans of particles: the domains of ranks and snapshots."""
