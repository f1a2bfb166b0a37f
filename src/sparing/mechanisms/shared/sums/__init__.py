"""Forms for accelerators of sums over features."""
