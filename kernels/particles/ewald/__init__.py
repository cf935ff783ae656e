"""Sums over all images of charges, wave by wave (Ewald)."""
