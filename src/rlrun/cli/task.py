"""`python -m rlrun.cli.task LOG WORDS...` runs one command, whose output and exit code go to files."""

import sys
from pathlib import Path

from rlrun.cli import main
from rlrun.cluster.task import run

if __name__ == "__main__":
    sys.exit(run(main, sys.argv[2:], Path(sys.argv[1])))
