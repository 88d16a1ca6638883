"""Changes single lines of the source, and finds the changes that no test notices."""
