"""What molecules and ions have beside pair potentials: bonds, exclusions, charges, and sums over all images."""
