"""Charged pairs by clusters: each pair once, eight neighbors that lie side by side at a time."""
