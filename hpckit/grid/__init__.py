"""Fields on blocks of a grid, their boundary conditions and the exchange of their halos."""
