"""The molecular dynamics app."""
