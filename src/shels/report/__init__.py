"""What a person looks at: figures and self-contained pages."""
