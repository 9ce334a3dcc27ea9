"""``python -m sbert`` is ``sbert``."""

import sys

from sbert.cli.main import main

sys.exit(main())
