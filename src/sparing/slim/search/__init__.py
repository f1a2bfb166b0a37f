"""Which form of the model is chosen: thresholds, widths and exits, and what each costs."""
