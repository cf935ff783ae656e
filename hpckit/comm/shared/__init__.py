"""Memory of a node that its ranks share, their group, and what is sent through it."""
