"""How a transformer runs: the plain way, and faster ones that give the same vectors."""
