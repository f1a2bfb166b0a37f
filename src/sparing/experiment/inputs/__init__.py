"""What an experiment is given: models, tokenizers, tasks, by name, folder or as objects."""
