"""The rooms of ``sbert train``: its settings from flags and files, and what is built from them."""
