"""One file for each mechanism: its test configurations and their references."""
