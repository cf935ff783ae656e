"""The sections of a run file of molecular dynamics, what they require of each other, and the presets."""
