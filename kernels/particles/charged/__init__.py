"""Pairs of charged particles: a pair potential and Coulomb's, whole, screened or damped."""
