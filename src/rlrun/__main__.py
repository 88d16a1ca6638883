"""`python -m rlrun` is `rlrun`."""

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # the current folder, which `python -m` puts first; installed programs do not search it
    from rlrun.cli import main

    sys.exit(main())
