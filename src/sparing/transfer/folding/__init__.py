"""Constants of a model's weights that transformers computes again in every call, computed once."""
