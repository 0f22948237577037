"""Every novelty score, our own and the rivals', one module each."""
