"""Windows of time: many steps with a cost along the way, walked backward with few states in memory."""
