"""Attention over keys and values that lie in blocks of tokens: bits that depend on a text alone, not on its batch."""
