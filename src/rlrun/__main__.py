"""`python -m rlrun` is `rlrun`."""

import sys

from rlrun.cli import main

if __name__ == "__main__":
    sys.exit(main())
