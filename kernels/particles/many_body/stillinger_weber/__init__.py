"""The potential of Stillinger and Weber: pairs, and angles by the moments of the bonds of each particle."""
