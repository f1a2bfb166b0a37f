"""Forms for accelerators that need scores of pairs."""
