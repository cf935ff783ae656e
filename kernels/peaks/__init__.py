"""What a machine can do at most: copies, triads and chains of multiply-adds, to be timed."""
