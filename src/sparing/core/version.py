"""The version, which packaging reads too."""

__version__ = "0.1.0"
