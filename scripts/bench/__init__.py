"""Benchmarks of rlrun alone and against other libraries. README.md describes how to run them."""
