"""The command line: ``sbert``, one file a command."""
