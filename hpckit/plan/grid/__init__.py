"""Plans of grids: decompositions, splits and halo exchanges."""
