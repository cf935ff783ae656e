"""Constants of the tracers."""

REACH = 3  # cells of halo: two for the parabola of the cell before an owned one, and that cell
