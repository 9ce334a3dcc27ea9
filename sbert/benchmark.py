"""How fast a model encodes here, beside its peers: ``sbert benchmark``."""
