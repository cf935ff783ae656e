"""Plans of collective operations."""
