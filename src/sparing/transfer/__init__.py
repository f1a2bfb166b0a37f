"""Hugging Face models: swap attention, undo it, save, load, measure the distance."""
