"""Other people's implementations as witnesses; where they err, a test shows it."""
