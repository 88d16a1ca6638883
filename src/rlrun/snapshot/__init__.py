"""Snapshots of a run: a directory each, every byte hashed, written so that a kill at any instant leaves a good one."""
