"""All forms answer the same texts; the fastest certified one is served."""
