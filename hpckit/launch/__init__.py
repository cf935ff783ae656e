"""Starting ranks with a launcher, watching how they end, and what they need from the machine."""
