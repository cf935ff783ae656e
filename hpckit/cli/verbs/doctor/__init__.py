"""The verb `doctor`: probes of an installation."""
