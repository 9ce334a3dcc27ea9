"""Optional dependencies: the error that says how to install them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


def missing(what: str, package: str, extra: str, otherwise: str = "") -> ImportError:
    """The error for a package that is not installed, with the command that installs it.

    Args:
        what: The feature that needs the package.
        package: Name of the package on PyPI.
        extra: The extra of this library that installs it.
        otherwise: An alternative to installing it, if there is one.

    Example:
        >>> from sbert.inputs.extras import missing
        >>> print(missing("a plot", "matplotlib", "plot"))
        a plot needs matplotlib; run: pip install "sbert[plot]"
    """
    return ImportError(f'{what} needs {package}; run: pip install "sbert[{extra}]"{otherwise and f", or {otherwise}"}')


@contextmanager
def require(what: str, package: str, extra: str, otherwise: str = "") -> Iterator[None]:
    """A block of imports from an optional package; if they fail, the error is that of ``missing``.

    Example:
        >>> from sbert.inputs.extras import require
        >>> with require("a plot", "matplotlib", "plot"):
        ...     import no_such_module
        Traceback (most recent call last):
        ImportError: a plot needs matplotlib; run: pip install "sbert[plot]"
    """
    try:
        yield
    except ImportError as error:
        raise missing(what, package, extra, otherwise) from error
