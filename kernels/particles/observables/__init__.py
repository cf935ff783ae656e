"""What is measured of particles: histograms of pair distances, Fourier sums of the density."""
