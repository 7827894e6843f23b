"""The mathematics: pure functions of arrays (NumPy and SciPy only)."""
