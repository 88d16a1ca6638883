"""Data sets of episodes on disk, in the format of Minari."""
