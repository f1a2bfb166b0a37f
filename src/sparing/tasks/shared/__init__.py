"""Shared by tasks and their users: reading, words, scores."""
