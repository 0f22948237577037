"""Rivals in continual learning: one file each, all by the accommodation protocol."""
