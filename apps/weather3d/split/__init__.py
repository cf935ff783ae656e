"""The box with split dynamics (HEVI)."""
