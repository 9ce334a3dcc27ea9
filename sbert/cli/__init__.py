"""The command line ``sbert``: one file per command. The guide is ``guide.md`` in this folder."""
