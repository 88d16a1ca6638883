"""Runs the command `rlrun` as `python -m rlrun`."""

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # `python -m` puts the current folder first; an installed program does not search that folder
    from rlrun.cli import main

    sys.exit(main())
