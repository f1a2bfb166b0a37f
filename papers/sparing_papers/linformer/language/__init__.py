"""Language models with projected keys and values: trainings and what is asked of them."""
