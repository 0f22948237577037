"""Experiments as values: trials, their results, the paper's catalogue, statistics, and what runs them."""
