"""Six kinds of water: vapor, cloud, rain, cloud ice, snow and graupel."""
