"""Layers around a mechanism: projections, scorers, gates."""
