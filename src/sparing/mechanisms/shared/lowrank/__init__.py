"""Forms for accelerators of attention to few summaries."""
