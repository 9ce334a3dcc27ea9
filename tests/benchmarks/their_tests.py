"""The tests of sentence-transformers on our names: how many pass, and why others fail.

python -m tests.benchmarks.their_tests CHECKOUT [--only PART ...] [--all FILE]

CHECKOUT is a folder of its repository. The tests run in a copy, after
``sbert.integrations.sentence_transformers.install()``, each file in a process of its own, with small random models
under the names that the tests load and small data of ``stand_ins``. A name that we do not offer is a stand-in, so that
the file can be imported: it raises when it is used. Slow ones run, too. What fails since it wants the values of a
real model is no fault. ``--all`` writes a line for each case that fails. SBERT_DATA names the folder of
evaluation data.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import types
from collections import Counter
from pathlib import Path
from typing import Any

LIMIT, FILE_LIMIT = 60, 900  # Seconds for a case, and for a file.
CONFIG = "[pytest]\nmarkers =\n    slow: x\n    custom: x\naddopts = -p no:cacheprovider\n"


class StandIn:
    """A name that we do not offer."""

    def __init__(self, name: str) -> None:
        self.__dict__["name"] = name

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return (object,)

    def __call__(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError(f"stand-in: {self.name}")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotImplementedError(f"stand-in: {self.name}")


def add_stand_ins(folder: Path) -> list[str]:
    """Stand-ins for the names that tests import and ours does not offer; returns these names."""
    from tests.benchmarks.their_scripts import find_reason, names_of

    absent = []
    for script in sorted(folder.rglob("*.py")):
        for owner, name in names_of(script):
            if not owner.startswith("from ") or not find_reason(owner, name):
                continue
            module = owner.removeprefix("from ")
            parts = module.split(".")
            for i in range(1, len(parts)):
                path = ".".join(parts[: i + 1])
                try:
                    importlib.import_module(path)
                except ImportError:
                    sys.modules[path] = types.ModuleType(path)
                    if not hasattr(sys.modules[".".join(parts[:i])], parts[i]):
                        setattr(sys.modules[".".join(parts[:i])], parts[i], sys.modules[path])
            available = re.fullmatch("is_.*_available", name)  # Files call these at their import.
            setattr(sys.modules[module], name, (lambda: True) if available else StandIn(name))
            absent.append(f"{module}.{name}")
    return list(dict.fromkeys(absent))


class Results:
    """A plugin of pytest that counts outcomes and notes why cases fail."""

    def __init__(self) -> None:
        self.cases: list[tuple[str, str, str]] = []

    def pytest_runtest_protocol(self, item: Any) -> None:
        """End a case that takes too long."""
        signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError(f"more than {LIMIT} s")))
        signal.alarm(LIMIT)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.cases.append((report.nodeid, report.outcome, _first_line(report)))

    def pytest_collectreport(self, report: Any) -> None:
        if report.outcome == "failed":
            self.cases.append((report.nodeid, "failed", f"not collected: {_first_line(report)}"))


def _first_line(report: Any) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else str(report.longrepr or "")
    lines = [line for line in text.strip().splitlines() if line.strip()] or [""]
    line = lines[0] if crash else lines[-1]
    return line if line.startswith("stand-in") else re.sub(r"\s+", " ", line)[:300]


def write_special_models(hub: Path) -> None:
    """Models of other modules than a transformer, in place of the small BERT."""
    import torch

    from sbert import SentenceEncoder
    from sbert.modules import Dense, Pooling, StaticEmbedding, Transformer

    def snapshot(name: str) -> Path:
        return next((hub / f"models--{name.replace('/', '--')}" / "snapshots").iterdir())

    bert = snapshot("sentence-transformers-testing/stsb-bert-tiny-safetensors")
    transformer = Transformer(str(bert.resolve()))
    fast = transformer.tokenizer.backend_tokenizer
    made = {
        "sentence-transformers-testing/stsb-bert-tiny-safetensors": [transformer, Pooling("mean")],
        "sentence-transformers-testing/all-nli-bert-tiny-dense": [transformer, Pooling("mean"), Dense(128, 64)],
        "sentence-transformers/static-retrieval-mrl-en-v1": [
            StaticEmbedding(fast, torch.randn(fast.get_vocab_size(), 1024))
        ],
    }
    for name, modules in made.items():
        target = snapshot(name)
        for file in target.iterdir():
            file.unlink()
        SentenceEncoder(modules=modules).save(target)


def work(folder: Path, files: list[str]) -> None:
    """Run test files in forks of this process, and write their outcomes."""
    from sbert.integrations.sentence_transformers import install

    install()
    import datasets
    import pytest
    from transformers import BertForMaskedLM, Trainer  # noqa: F401  Once, and not in each fork.

    from tests.benchmarks import stand_ins

    datasets.load_dataset = stand_ins.load_dataset
    print("stand-ins:", ", ".join(add_stand_ins(folder / "tests")))
    stand_ins.replace_downloads(folder / "files")
    stand_ins.rows()
    for name in [name for name in sys.modules if name.split(".")[0] == "tests"]:
        del sys.modules[name]  # Theirs has this name, too.
    sys.path[0] = str(folder)
    os.chdir(folder)
    for file in files:
        target = folder / "results" / f"{file.replace('/', '-')}.json"
        begin = time.monotonic()
        child = os.fork()
        if child == 0:
            os.setsid()
            results = Results()
            try:
                code = pytest.main(
                    ["-q", "--no-header", "--tb=no", "-W", "ignore", "-c", "pytest.ini", file], plugins=[results]
                )
                if code in (2, 3, 4):
                    results.cases.append((file, "failed", f"pytest ends with code {code}"))
            finally:
                target.write_text(json.dumps(results.cases), encoding="utf-8")
                os._exit(0)
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            if time.monotonic() - begin > FILE_LIMIT:
                os.killpg(child, signal.SIGKILL)
            time.sleep(0.1)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)


def reason_of(message: str) -> str:
    """A failure without the numbers and names that differ from case to case."""
    message = re.sub(r"0x[0-9a-f]+|\d+", "#", message)
    message = re.sub(r"'[^']{0,80}'|\"[^\"]{0,80}\"", "'…'", message) if "stand-in" not in message else message
    return message[:160]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--only", nargs="*", default=[""], metavar="PART", help="files with PART in their path")
    parser.add_argument("--all", type=Path, metavar="FILE")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker, options.only)
        return
    from tests.benchmarks.stand_ins import names_in, write_files, write_models, write_nanobeir

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        shutil.copytree(options.checkout / "tests", folder / "tests")
        (folder / "pytest.ini").write_text(CONFIG)
        (folder / "results").mkdir()
        paths = sorted((folder / "tests").rglob("*.py"))
        files = [str(path.relative_to(folder)) for path in paths if path.name.startswith("test_")]
        files = [file for file in files if any(part in file for part in options.only)]
        write_models(folder / "hub", names_in(paths), 768)
        write_files(folder / "files")
        write_nanobeir(folder / "hub")
        write_special_models(folder / "hub")
        settings = {"HF_HUB_CACHE": str(folder / "hub"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        settings |= {"TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": ""}
        command = [sys.executable, "-m", "tests.benchmarks.their_tests", str(options.checkout)]
        subprocess.run(
            [*command, "--worker", str(folder), "--only", *files],
            env=os.environ | settings,
            stdout=sys.stderr,
            check=True,
        )
        print_results(folder, files, options.all)


def print_results(folder: Path, files: list[str], everything: Path | None) -> None:
    """The tables: outcomes by file, and failures by reason."""
    outcomes: dict[str, Counter[str]] = {}
    reasons: dict[str, list[str]] = {}
    lines = []
    for file in files:
        path = folder / "results" / f"{file.replace('/', '-')}.json"
        cases = (
            json.loads(path.read_text(encoding="utf-8")) if path.exists() else [(file, "failed", "the process ended")]
        )
        last = {case: (outcome, message) for case, outcome, message in cases}  # The last phase of a case counts.
        outcomes[file] = Counter(outcome for outcome, _ in last.values())
        for case, (outcome, message) in last.items():
            if outcome == "failed":
                reasons.setdefault(reason_of(message), []).append(case)
                lines.append(f"{case}\t{message}")
    print("| file | passed | failed | skipped |\n|---|---|---|---|")
    total: Counter[str] = Counter()
    for file, counts in outcomes.items():
        total += counts
        print(f"| {file} | {counts['passed']} | {counts['failed']} | {counts['skipped']} |")
    print(f"| all | {total['passed']} | {total['failed']} | {total['skipped']} |")
    print("\n| failures | reason | first case |\n|---|---|---|")
    for reason, cases in sorted(reasons.items(), key=lambda item: -len(item[1])):
        print(f"| {len(cases)} | {reason.replace('|', '/')} | {cases[0]} |")
    if everything:
        everything.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
