"""Forces between pairs of particles by any radial potential, over neighbor lists."""
