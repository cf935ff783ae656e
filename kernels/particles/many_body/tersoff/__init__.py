"""Tersoff's potential: bonds whose strength depends on what is around them."""
