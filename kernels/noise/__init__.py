"""Random numbers that are functions of a counter, so that they do not depend on who asks in which order."""
