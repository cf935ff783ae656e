"""The embedded-atom method: densities of electrons, and forces that depend on them."""
