"""Run the tests with several versions of Python, each in an environment of its own with torch from the index.

``python -m tests.project.python_versions FOLDER 3.10 3.13``: the environments stand in FOLDER (3 GB each) and are used
again; an interpreter may also be given by its path. Further arguments, behind ``--``, go to pytest.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from tests.project.code_lines import PACKAGE

ROOT = PACKAGE.parent


def prepare(folder: Path, python: str) -> Path:
    """The interpreter of an environment with this checkout and what its tests need."""
    interpreter = python if "/" in python else f"python{python}"
    show = "import platform; print(platform.python_version())"
    version = subprocess.run([interpreter, "-c", show], capture_output=True, text=True, check=True).stdout.strip()
    own = folder / version / "bin" / "python"
    if not own.exists():
        subprocess.run([interpreter, "-m", "venv", folder / version], check=True)
    subprocess.run([own, "-m", "pip", "install", "--quiet", "torch==2.13.0", "-e", f"{ROOT}[test]"], check=True)
    return own


def main() -> int:
    """Print a line per version; the number of versions with failures."""
    given = sys.argv[1:]
    end = given.index("--") if "--" in given else len(given)  # The parser would read what is behind it as versions.
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the environments stand")
    parser.add_argument("pythons", nargs="+", help="versions, or paths of interpreters")
    arguments = parser.parse_args(given[:end])
    codes = {}
    for python in arguments.pythons:
        command = [prepare(arguments.folder, python), "-m", "pytest", *given[end + 1 :]]
        codes[python] = subprocess.run(command, cwd=ROOT).returncode
    for python, code in codes.items():
        print(f"Python {python}: {'passed' if code == 0 else f'failed, exit code {code}'}")
    return sum(code != 0 for code in codes.values())


if __name__ == "__main__":
    sys.exit(main())
