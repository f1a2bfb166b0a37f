"""What models and their users share: sizes, labels, silence."""
