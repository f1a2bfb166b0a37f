"""What open goals would need, and what planned seeds could decide."""
