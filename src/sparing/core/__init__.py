"""The vocabulary of the package, used by every other folder. Imports torch only."""
