"""Benchmarks: ratios within one process and one thread, written to RESULTS.md by ``python -m benchmarks``."""
