"""``python -m sbert`` is ``sbert``."""

import sys

from sbert.cli import main

sys.exit(main())
