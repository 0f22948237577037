"""The agent: a learner that meets batches, finds what is new, asks, and learns it."""
