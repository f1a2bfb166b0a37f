"""What would make a model faster on this machine, and what would not."""
