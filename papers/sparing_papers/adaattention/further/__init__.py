"""What further runs have: taught layers, one scorer for several tasks, what they could show."""
