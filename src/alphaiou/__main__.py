"""``python -m alphaiou``: the command line."""

import sys

from alphaiou.cli import main

if __name__ == "__main__":
    sys.exit(main())
