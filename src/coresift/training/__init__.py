"""Training with PyTorch, an extra: nothing here is imported by the package itself."""
