"""Searches hyperparameters: which values a sweep may try, and which it tries next."""
