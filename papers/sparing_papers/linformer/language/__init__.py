"""Language models with projected keys and values: trainings and what they are evaluated on."""
