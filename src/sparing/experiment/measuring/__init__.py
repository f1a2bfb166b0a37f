"""What ``measure`` and ``prune`` measure: a candidate beside its baseline, a model before and after."""
