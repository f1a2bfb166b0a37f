"""What the five papers claim, and what the committed runs say of it."""
