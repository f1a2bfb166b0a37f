"""What mechanisms and their users share: products, softmax, scores and widths."""
