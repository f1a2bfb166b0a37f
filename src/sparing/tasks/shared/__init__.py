"""What tasks and their users share: reading, words, scores."""
