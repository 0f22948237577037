"""Training: the one loop that every method trains through, one trial or a stack of them."""
