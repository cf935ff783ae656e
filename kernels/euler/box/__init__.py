"""The box: x, y and z."""
