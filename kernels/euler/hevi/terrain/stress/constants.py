"""Rows of the work space of mixing over terrain: what stands in one cell, float64[13, …] as the state."""

# Gradients of the wind, and then the stresses on it: in the middle of a cell, ...
U_X, V_Y, W_Z = range(3)
# ... at its low corner in x and y, and at its low edges in x and z and in y and z (0 at ground and lid).
U_Y, V_X, U_Z, W_X, V_Z, W_Y = range(3, 9)
GRADIENTS = 9
OFF_U, OFF_V, OFF_W, OFF_THETA = range(9, 13)  # u, v, w and theta without those of the base state
ROWS = 13
