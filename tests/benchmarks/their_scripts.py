"""Example scripts of sentence-transformers under our names: whether all names exist, and whether figures are equal.

python -m tests.benchmarks.their_scripts CHECKOUT [--only PART ...]

CHECKOUT is a folder of its repository. The first table says which names that the dense and the cross-encoder scripts
import or use are not offered after ``sbert.integrations.sentence_transformers.install()``, with the reason of
``migrating.md``. The second runs each script, unchanged, with the package and with ours, in a process of its own with
small models, data and files of ``stand_ins``, in float32, since 16 bits need a GPU. What a script reads from its user
are two questions; then its input ends.

Figures are what evaluators return, first and last, and the correlation of 60 gold scores with those of the last model
that was saved; where there are none, the numbers that are printed. They must be equal to 0.0001, those of a trained
model to 0.01 or to twice the largest difference between two runs of the package with two seeds. SBERT_DATA names the
folder of evaluation data.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import contextlib
import io
import json
import os
import random
import re
import resource
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.stand_ins import names_in, rows, write_files, write_models, write_nanobeir

LIMIT = 100  # Seconds of a processor for a script; ten times as many by the clock.
NUMBER = r"-?\d+\.\d*(?:e[-+]\d+)?"
QUESTIONS = ["How do I cook an egg?", "A man is playing a guitar."]
THEIRS = "sentence_transformers"
NO_MODEL = "a tiny model of another kind"
# What scripts are called with, if anything.
ARGUMENTS = {
    **dict.fromkeys(("train_ct_from_file", "train_ct-improved_from_file", "train_simcse_from_file"), "sentences.txt"),
    "train_tsdae_from_file": "sentences.txt",
    "train_mlm": "bert-base-uncased sentences.txt",
    "evaluation_translation_matching": "LaBSE sentence-transformers/parallel-sentences-talks en-de",
    "matryoshka_eval_stsb": "plot.png",
    "eval_msmarco": "bert-base-uncased",
    "eval_askubuntu": "bert-base-uncased",
    "eval_cross-encoder-trec-dl": "cross-encoder/ms-marco-MiniLM-L6-v2",
    "train_bi-encoder_margin-mse": "--model_name bert-base-uncased --epochs 1",
    "train_bi-encoder_mnrl": "--model_name bert-base-uncased --epochs 1",
    "train_sts_seed_optimization": "bert-base-uncased 2",
}
LEFT_OUT = {"computing_embeddings_multi_gpu": "100,000 texts", "hpo_nli": "20 trainings"}
LEFT_OUT["train_sts_seed_optimization"] = "logs every tenth of its steps, of which small data has too few"


def scripts_of(checkout: Path) -> list[Path]:
    """The dense scripts, then those of cross-encoders."""
    kinds = ("sentence_transformer", "cross_encoder")
    return [path for kind in kinds for path in sorted((checkout / "examples" / kind).rglob("*.py"))]


def key_of(script: Path) -> str:
    """A name of a script that no other has."""
    return "-".join(script.with_suffix("").parts[-4:])


def names_of(script: Path) -> list[tuple[str, str]]:
    """The names that a script imports from the package, and the attributes that it uses of these: (owner, name)."""
    nodes = list(ast.walk(ast.parse(script.read_text(encoding="utf-8"))))
    owners: dict[str, str] = {}
    names: dict[tuple[str, str], None] = {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == THEIRS:
            for alias in node.names:
                names[f"from {node.module}", alias.name] = None
                owners[alias.asname or alias.name] = f"{node.module}:{alias.name}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == THEIRS:
                    names[f"import {alias.name}", ""] = None
                    owners[alias.asname or THEIRS] = alias.name if alias.asname else THEIRS
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in owners:
            names[owners[node.value.id], node.attr] = None
    return list(names)


def find_reason(owner: str, name: str) -> str:
    """Why a name is not offered; empty if it is."""
    try:
        if " " in owner:
            exec(f"{owner} import {name}" if name else owner, {})
        else:
            module, _, attribute = owner.partition(":")
            holder = import_module(module)
            getattr(getattr(holder, attribute) if attribute else holder, name)
    except (ImportError, AttributeError) as error:
        return str(error)
    return ""


def print_names(scripts: list[Path]) -> dict[Path, list[str]]:
    """The first table; returns the names that each script does not find."""
    from sbert.integrations.sentence_transformers import install

    install()
    absent: dict[Path, list[str]] = {}
    reasons: Counter[tuple[str, str]] = Counter()
    for script in scripts:
        missing = {name or owner: reason for owner, name in names_of(script) if (reason := find_reason(owner, name))}
        reasons.update(missing.items())
        absent[script] = list(missing)
    print("| name | scripts | reason |\n|---|---|---|")
    for (name, reason), count in reasons.most_common():
        print(f"| {name} | {count} | {reason.rpartition('instead: ')[2]} |")
    for kind in ("sentence_transformer", "cross_encoder"):
        chosen = [names for script, names in absent.items() if f"examples/{kind}/" in script.as_posix()]
        print(f"\n{kind}: {sum(not names for names in chosen)} of {len(chosen)} scripts find all names")
    return absent


# In a process of its own: the package or ours, and a fork for each script.


class Recorder:
    """What evaluators return, and the model that was saved last."""

    def __init__(self) -> None:
        self.depth = 0
        self.evaluations: list[dict[str, float]] = []
        self.model: Any = None

    def watch_calls(self, owner: type) -> None:
        """Record what an evaluator returns, unless another evaluator calls it."""
        call = owner.__call__

        def wrapped(evaluator: Any, *args: Any, **options: Any) -> Any:
            self.depth += 1
            try:
                result = call(evaluator, *args, **options)
            finally:
                self.depth -= 1
            if not self.depth and isinstance(result, dict):  # Others are losses of evaluation data.
                self.evaluations.append({key: float(np.mean(value)) for key, value in result.items()})
            return result

        owner.__call__ = wrapped  # type: ignore[method-assign]

    def watch_saving(self, owner: type) -> None:
        """Remember each model that is saved."""
        owner.push_to_hub = lambda *_, **__: ""  # type: ignore[attr-defined]
        for name in ("save", "save_pretrained"):
            save = getattr(owner, name)

            def remember(model: Any, *args: Any, _save: Any = save, **options: Any) -> Any:
                self.model = model
                return _save(model, *args, **options)

            setattr(owner, name, remember)

    def scores(self) -> list[float]:
        """The scores of 60 pairs by the last model."""
        if self.model is None:
            return []
        first, second, _ = zip(*rows()[-60:], strict=True)
        if hasattr(self.model, "predict"):
            scores = self.model.predict(list(zip(first, second, strict=True)), show_progress_bar=False)
            return [float(score) for score in scores.reshape(60, -1)[:, 0]]
        one, other = (self.model.encode(list(texts), normalize_embeddings=True) for texts in (first, second))
        return [float(score) for score in (one * other).sum(1)]


def prepare(ours: bool, files: Path, seed: int) -> Recorder:
    """Import the package or ours, and put small data in place of what is downloaded."""
    if ours:
        from sbert.integrations.sentence_transformers import install

        install()
    import datasets
    import scipy.stats  # noqa: F401  Once, and not in each fork.
    import sentence_transformers
    import sklearn.cluster  # noqa: F401
    from sentence_transformers import cross_encoder, evaluation
    from sentence_transformers.cross_encoder import evaluation as scoring
    from transformers import BertForMaskedLM, Trainer  # noqa: F401

    from tests.benchmarks import stand_ins

    stand_ins.replace_downloads(files)
    datasets.load_dataset = stand_ins.load_dataset
    stand_ins.shrink_limits()
    recorder = Recorder()
    modules = [evaluation, scoring, *(m for n, m in sys.modules.items() if n.startswith("sbert.eval"))]
    classes = {value for module in modules for value in vars(module).values() if isinstance(value, type)}
    for owner in {base for one in classes for base in one.__mro__ if "__call__" in vars(base)}:
        if owner.__module__.split(".")[0] in ("sbert", THEIRS) and not issubclass(
            owner, sentence_transformers.CrossEncoder
        ):
            recorder.watch_calls(owner)
    for owner in (sentence_transformers.SentenceTransformer, cross_encoder.CrossEncoder):
        recorder.watch_saving(owner)
    for owner in {
        sentence_transformers.SentenceTransformerTrainingArguments,
        cross_encoder.CrossEncoderTrainingArguments,
    }:

        def make(self: Any, *args: Any, _init: Any = owner.__init__, **options: Any) -> None:
            _init(self, *args, **{**options, "fp16": False, "bf16": False, "seed": options.get("seed", 42) + seed})

        owner.__init__ = make  # type: ignore[method-assign]
    return recorder


def run_script(script: Path, recorder: Recorder, seed: int) -> dict[str, Any]:
    """Run a script in this process, in a new folder, and return its figures or its error."""
    import torch

    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    questions = iter(QUESTIONS)

    def ask(*_: Any) -> str:
        try:
            return next(questions)
        except StopIteration:
            raise EOFError("no more questions") from None

    builtins.input = ask
    sys.argv = [str(script), *ARGUMENTS.get(script.stem, "").split()]
    sys.path.insert(0, str(script.parent))
    printed, error = io.StringIO(), ""
    with contextlib.redirect_stdout(printed):
        for _ in range(2):  # Some write the data first, and end for a second call.
            try:
                runpy.run_path(str(script), run_name="__main__")
            except EOFError:
                break
            except SystemExit as end:
                error = "" if end.code in (None, 0) else f"SystemExit: {end.code}"
                if not error:
                    continue
            except BaseException as exception:
                traceback.print_exc()
                steps = traceback.extract_tb(exception.__traceback__)
                lines = [step.lineno for step in steps if step.filename == str(script)]
                place = f"line {lines[-1] if lines else '?'}, {Path(steps[-1].filename).name}:{steps[-1].lineno}"
                error = f"{type(exception).__name__}: {exception} ({place})"
            break
        scores = [] if error else recorder.scores()
    evaluations = recorder.evaluations
    return {"error": error, "evaluations": evaluations, "scores": scores, "printed": printed.getvalue()}


def work(scripts: list[Path], ours: bool, seed: int, files: Path, results: Path) -> None:
    """Run scripts one after the other, each in a fork of this process."""
    recorder = prepare(ours, files, seed)
    for script in scripts:
        if script.stem in LEFT_OUT:
            continue
        target = results / f"{key_of(script)}-{seed}.json"
        with tempfile.TemporaryDirectory() as folder:
            begin = time.monotonic()
            child = os.fork()
            if child == 0:
                os.setsid()
                resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT))
                os.chdir(folder)
                is_wide = re.search("matryoshka|768|nq-distil", script.read_text(encoding="utf-8"))
                Path("hub").symlink_to(results.parent / f"hub-{768 if is_wide else 96}")
                for name in ("sentences.txt", "glove.6B.300d.txt.gz", "generated_queries.tsv"):
                    shutil.copy(files / name, name)
                try:
                    target.write_text(json.dumps(run_script(script, recorder, seed)), encoding="utf-8")
                except BaseException:
                    traceback.print_exc()
                finally:
                    sys.stderr.flush()
                    os._exit(0)
            while os.waitpid(child, os.WNOHANG) == (0, 0):
                if time.monotonic() - begin > 10 * LIMIT:
                    os.killpg(child, signal.SIGKILL)
                    os.waitpid(child, 0)
                    target.write_text(json.dumps({"error": "takes too long"}), encoding="utf-8")
                    break
                time.sleep(0.05)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
        if not target.exists():
            target.write_text(json.dumps({"error": f"the process ended, perhaps after {LIMIT} s"}), encoding="utf-8")


def compare(ours: dict[str, Any], theirs: dict[str, Any], other: dict[str, Any]) -> tuple[str, str]:
    """Whether figures are equal, and the difference that is the largest for what is allowed; empty after an error."""
    if ours["error"] or theirs["error"]:
        return "", ""
    figures = [figures_of(result) for result in (ours, theirs, other)]
    if not figures[1]:
        numbers = [re.findall(NUMBER, lines_of(result)) for result in (ours, theirs)]
        words = [re.sub(f" *{NUMBER} *", "#", lines_of(result)) for result in (ours, theirs)]
        if not words[1].strip():
            return "nothing to compare", ""
        if words[0] != words[1]:
            pairs = zip(words[0].splitlines(), words[1].splitlines(), strict=False)
            return "no", "prints " + next((f"{a!r:.80} for {b!r:.80}" for a, b in pairs if a != b), "fewer lines")
        worst = max((abs(float(a) - float(b)) for a, b in zip(*numbers, strict=True)), default=0.0)
        return ("yes" if worst < 2e-3 else "no"), f"printed numbers differ by {worst:.1e}"
    absent = [name for name in figures[1] if name not in figures[0]]
    if absent:
        return "no", f"{len(absent)} of {len(figures[1])} figures are not returned: {', '.join(absent[:4])}"
    noise = {name: abs(value - figures[2].get(name, value)) for name, value in figures[1].items()}
    allowed = max(0.01, 2 * max(noise.values())) if theirs["scores"] else 1e-4
    differences = {name: abs(value - figures[0][name]) for name, value in figures[1].items()}
    worst = max(differences, key=lambda name: differences[name])
    equal = "yes" if differences[worst] <= allowed else "no"
    return equal, f"{worst}: {differences[worst]:.4f}, seeds {noise[worst]:.4f}"


def figures_of(result: dict[str, Any]) -> dict[str, float]:
    """The figures of the first and the last evaluation, and the scores of the last model."""
    evaluations = result.get("evaluations") or []
    named = {f"first {name}": value for name, value in (evaluations[0] if evaluations else {}).items()}
    named |= {f"last {name}": value for name, value in (evaluations[-1] if evaluations else {}).items()}
    if scores := result.get("scores"):
        gold = [score for _, _, score in rows()[-len(scores) :]]
        named["correlation of the saved model"] = float(np.corrcoef(scores, gold)[0, 1])
    return named


def lines_of(result: dict[str, Any]) -> str:
    """What was printed, but for lines of times."""
    lines = result["printed"].splitlines()
    return "\n".join(line for line in lines if not re.search(r"\bsec|time|\d:\d\d", line, re.IGNORECASE))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--only", nargs="*", default=[""], metavar="PART", help="scripts with PART in their path")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    checkout = options.checkout.resolve()
    scripts = [path for path in scripts_of(checkout) if any(part in path.as_posix() for part in options.only)]
    if options.worker:
        which, seed, folder = options.worker
        work(scripts, which == "ours", int(seed), Path(folder) / "files", Path(folder) / which)
        return
    absent = print_names(scripts)
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary).resolve()
        for name in ("ours", "theirs", "files"):
            (root / name).mkdir()
        write_files(root / "files")
        names = names_in(scripts) | {text for text in " ".join(ARGUMENTS.values()).split() if text[0] != "-"}
        for dim in (96, 768):
            write_models(root / f"hub-{dim}", names, dim)
            write_nanobeir(root / f"hub-{dim}")
        run(checkout, root, scripts, "ours", 0)
        run(checkout, root, scripts, "theirs", 0)
        unequal = [script for script in scripts if compare(*results_of(root, script))[0] == "no"]
        run(checkout, root, unequal, "theirs", 1)
        print_results(checkout, root, scripts, absent)


def run(checkout: Path, root: Path, scripts: list[Path], which: str, seed: int) -> None:
    """A process for the package or ours that runs scripts one after the other."""
    settings = {"HF_HUB_CACHE": "hub", "HF_HUB_OFFLINE": "1", "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
    settings |= {"TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": "", "MPLBACKEND": "agg"}
    command = [sys.executable, "-m", "tests.benchmarks.their_scripts", str(checkout)]
    command += ["--worker", which, str(seed), str(root), "--only", *map(str, scripts)]
    with (root / f"{which}-{seed}.log").open("w") as log:
        subprocess.run(command, env=os.environ | settings, stdout=log, stderr=log)


def results_of(root: Path, script: Path) -> list[dict[str, Any]]:
    """What a script gave with ours, and with the package and two seeds."""
    name = key_of(script)
    if script.stem in LEFT_OUT:
        return [{"error": f"left out: {LEFT_OUT[script.stem]}"}] * 3
    files = [root / f"ours/{name}-0.json", *(root / f"theirs/{name}-{seed}.json" for seed in (0, 1))]
    return [json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"error": "not run"} for file in files]


def print_results(checkout: Path, root: Path, scripts: list[Path], absent: dict[Path, list[str]]) -> None:
    """The second table, and counts."""
    print("\n| script | names | ours | theirs | equal | reason |\n|---|---|---|---|---|---|")
    counts: Counter[str] = Counter()
    for script in scripts:
        ours, theirs, other = results_of(root, script)
        equal, reason = compare(ours, theirs, other)
        errors = {"ours": ours["error"], "theirs": theirs["error"]}
        reason = reason or "; ".join(f"{name}: {error}" for name, error in errors.items() if error)
        row = ["no" if missing else "yes" for missing in (absent[script], *errors.values())] + [equal]
        counts[f"ours {row[1]}, theirs {row[2]}" + (f", equal {equal}" if equal else "")] += 1
        shown = re.sub(r"\s+", " ", reason).replace("|", "/")[:300]
        print(f"| {script.relative_to(checkout / 'examples')} | {' | '.join(row)} | {shown} |")
    print("\n" + "\n".join(f"{name}: {count}" for name, count in counts.most_common()))


if __name__ == "__main__":
    main()
