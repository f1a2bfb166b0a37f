"""One file is one study: a task, arms and seeds, and the goals it declares."""
