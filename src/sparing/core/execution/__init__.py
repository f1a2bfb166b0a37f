"""How a mechanism's work is done: on which path, and whether compiled."""
