"""Other packages and coresift on the same arrays: time, memory and quality. ``python -m paper benchmark peers``."""
