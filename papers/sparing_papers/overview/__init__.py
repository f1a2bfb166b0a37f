"""What the five papers claim, and what the committed runs measured."""
