"""What ``measure`` and ``prune`` measure: one or two models beside a baseline."""
