"""One file for each mechanism: how it is tested and what it must equal."""
