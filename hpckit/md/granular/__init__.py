"""Granular matter: spheres that touch, roll and slide on each other."""
