"""Shared by models and their users: sizes, labels, silence."""
