"""The page of a slimmed model."""
