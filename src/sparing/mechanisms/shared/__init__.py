"""Shared by mechanisms and their users: products, softmax, scores and widths."""
