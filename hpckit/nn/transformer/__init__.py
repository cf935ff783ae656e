"""The parts of a transformer: attention, its rotary positions, and the residual branches of a block."""
