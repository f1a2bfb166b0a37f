"""What is measured: trainings, answers, curves, patterns and speeds, a cell each."""
