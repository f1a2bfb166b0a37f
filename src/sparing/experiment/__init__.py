"""The engine: how any experiment is run, recorded and evaluated; it knows no study by name."""
