"""The service: a home over HTTP, for cameras, pipelines and a page (`shels serve`). It decides nothing."""
