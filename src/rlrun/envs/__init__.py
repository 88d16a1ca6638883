"""Environments: made, vectorised, wrapped, saved and restored behind one reset convention."""
