"""`python -m rlrun.cli.server` starts commands in forks of itself, as `cluster/server.py` describes."""

from rlrun.cli import main
from rlrun.cluster.server import serve

if __name__ == "__main__":
    serve(main)
