"""One file is one measured quantity: latency, memory, FLOPs, energy; plus statistics."""
