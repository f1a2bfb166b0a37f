"""Into Hugging Face models: swap attention, put it back, save, load, measure the distance."""
