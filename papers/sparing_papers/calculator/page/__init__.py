"""The page of the study."""
