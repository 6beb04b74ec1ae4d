"""A training step on a GPU that is not there."""
