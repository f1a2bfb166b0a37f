"""Forms for accelerators of attention to windows, blocks and columns."""
