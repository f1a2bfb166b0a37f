"""One file is one measured quantity: latency, memory, arithmetic, energy; plus statistics."""
