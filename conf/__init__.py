"""The configuration tree: what a user composes. Every number lives here, each with its comment."""
