"""What `benchmarks/serve.py` sends to a service, from processes of their own."""
