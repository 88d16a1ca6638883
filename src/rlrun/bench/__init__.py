"""How fast the pieces are on this machine, and whether presets train to the same bits as at an older commit.

scripts/bench measures whole runs beside other libraries.
"""
