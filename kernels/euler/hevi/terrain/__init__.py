"""What terrain changes in the split dynamics: metric terms of levels that follow the ground."""
