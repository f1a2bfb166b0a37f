"""How any experiment is run, kept and judged; it knows no study by name."""
