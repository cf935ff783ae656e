"""What every rank is doing: the watch, its diagnosis, waits and timers."""
