"""How fast rlrun is, by itself and beside other libraries. README.md says how to run it."""
