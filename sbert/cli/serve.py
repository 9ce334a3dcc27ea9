"""``sbert serve``: answer over HTTP, with vectors as OpenAI does, and with ranks as Cohere does.

sbert serve sbert-mini --port 8000
sbert serve all-MiniLM-L6-v2 --rerank cross-encoder/ms-marco-MiniLM-L6-v2
"""

from __future__ import annotations

import argparse

from sbert.cli.options import LOADING, add_options, at_least


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``sbert serve``."""
    add_options(parser, "model", *LOADING)
    parser.add_argument("--rerank", metavar="MODEL", help="cross-encoder for /rerank")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (default: this machine only)")
    parser.add_argument("--port", type=at_least(0), default=8000, help="0 for any free one (default: %(default)s)")
    parser.add_argument("--api-key", metavar="KEY", help="what clients must send (default: $SBERT_API_KEY, or nothing)")
    parser.add_argument("--truncate", action="store_true", help="truncate texts that are too long; else they get a 413")
    parser.add_argument("--max-queue", type=at_least(1), default=1024, help="requests that wait (default: %(default)s)")


def run(arguments: argparse.Namespace) -> None:
    """Run ``sbert serve`` until SIGTERM or Ctrl-C; what was asked for before is answered."""
    from sbert.cli.server import Service

    Service(arguments).run()
