"""The page kit: the parts of a page and its writers. It knows no study."""
