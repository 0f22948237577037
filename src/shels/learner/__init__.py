"""The learner: a network, its classes and its detector as one value, with what changes and what stores it."""
