"""How fast the pieces are on this machine; scripts/bench measures whole runs beside other libraries."""
