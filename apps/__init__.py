"""Programs on hpckit. They never import each other."""
