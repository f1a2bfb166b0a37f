"""Five papers on efficient models, reproduced with sparing: a folder each."""
