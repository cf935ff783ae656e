"""Figures of this node: peaks, and the machine model that plans are priced with."""
