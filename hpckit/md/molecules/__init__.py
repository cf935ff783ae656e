"""Forces of molecules and ions beyond pair potentials: bonds, exclusions, charges, and sums over all images."""
