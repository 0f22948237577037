"""Learning: the ways to take in a class, and what every one of them offers."""
