"""Plans: pure values that say who owns what and who sends what to whom. No MPI here."""
