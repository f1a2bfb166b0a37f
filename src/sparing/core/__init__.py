"""The words of the house: what every other folder speaks in. Imports torch only."""
