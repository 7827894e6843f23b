"""``python -m coresift`` is the command ``coresift``."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
