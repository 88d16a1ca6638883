"""One run: its parts are put together, trained, evaluated, saved and resumed."""
