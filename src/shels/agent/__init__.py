"""The agent: a learner that lives among batches, finds what is new, asks, and learns it."""
