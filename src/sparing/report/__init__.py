"""The page kit: what any page is made of, and how it is written. It knows no study."""
