"""Adaptive forms of dense models: their configuration, and how weights are carried over."""
