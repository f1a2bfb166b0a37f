"""A tiny network that reads a sum as text and writes its value, exact also at unseen lengths."""

from sparing.calculator.network import Answer, Calculator
from sparing.calculator.proof import Proof, prove_calculator
from sparing.calculator.training import CalculatorRecipe, TrainedCalculator, train_calculator

__all__ = [
    "Answer",
    "Calculator",
    "CalculatorRecipe",
    "Proof",
    "TrainedCalculator",
    "prove_calculator",
    "train_calculator",
]
