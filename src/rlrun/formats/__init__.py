"""The formats of stored runs, and how runs of earlier formats are read."""
