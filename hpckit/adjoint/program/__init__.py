"""Graphs made ready to run on ranks: stages between exchanges, and scripts of what is done for them."""
