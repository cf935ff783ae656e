"""Charges on a mesh: spread over the points around each particle, and forces gathered from there."""
