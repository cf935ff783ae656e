"""The sections of a report page."""
