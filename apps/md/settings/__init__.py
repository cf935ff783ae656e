"""The sections of a run file of molecular dynamics, and what they require of each other."""
