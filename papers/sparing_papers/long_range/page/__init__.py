"""What the pages of both studies share."""
