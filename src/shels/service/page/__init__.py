"""The page: what comes in, what is new and its name, classes, history and quality; HTML over the service."""
