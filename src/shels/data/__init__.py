"""From files and arrays to checked tensors, and from one data set to known and novel classes."""
