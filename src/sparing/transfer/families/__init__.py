"""Families of encoders: one file for each, from which adaptive forms are built."""
