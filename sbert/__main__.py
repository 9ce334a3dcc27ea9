"""``python -m sbert`` is ``sbert``."""

import sys


def start() -> int:
    """Run the command line, of which Ctrl-C ends the imports, too."""
    try:
        from sbert.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(start())
