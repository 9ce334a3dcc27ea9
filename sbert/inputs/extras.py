"""Packages that a part of the library needs and that do not come with it."""

from __future__ import annotations


def missing(what: str, package: str, extra: str, otherwise: str = "") -> ImportError:
    """The error to raise where a package is not installed, with the command that installs it.

    Args:
        what: What needs the package, as the caller knows it.
        package: Its name on PyPI.
        extra: The extra of this library that brings it.
        otherwise: What to do instead, if there is a way.

    Example:
        >>> print(missing("a plot", "matplotlib", "plot"))
        a plot needs matplotlib; run: pip install "sbert[plot]"
    """
    return ImportError(f'{what} needs {package}; run: pip install "sbert[{extra}]"{otherwise and f", or {otherwise}"}')
