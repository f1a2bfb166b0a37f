"""Embedding models: an encoder with what makes a vector of its tokens, dense and adaptive."""
