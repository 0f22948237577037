"""Every way to take in a class, our own and the rivals', one module each."""
