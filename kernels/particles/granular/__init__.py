"""Contacts of spheres that roll and slide on each other: springs, dampers, friction, and what a contact remembers."""
