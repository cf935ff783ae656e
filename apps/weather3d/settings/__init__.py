"""Settings of the box by sections, and the rules between them."""
