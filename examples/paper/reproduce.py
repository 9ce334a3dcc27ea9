"""The tables of the Sentence-BERT paper, measured here and printed beside the paper's figures.

python -m examples.paper.reproduce --data FOLDER --backbone NAME_OR_FOLDER[,NAME_OR_FOLDER] --output FOLDER
    [--tables 1,2] [--quick] [--seeds N]

FOLDER holds stsb, sts, sick, nli, senteval, afs (ArgPairs_*.csv), wikipedia-sections-triplets (train.csv, test.csv),
and vectors with a GloVe file and one of fastText (*.vec); the program reports and skips what is missing. A backbone is
a transformer, from the hub or in a folder; the paper's are bert-base-uncased, bert-large-uncased, roberta-base and
roberta-large. The rows of several backbones, separated by commas, are joined in one table. The tables go to
OUTPUT/tables.md and OUTPUT/*.png. Each result is written to OUTPUT/results.jsonl immediately, and trainings write
checkpoints, so that an interrupted run continues where it stopped.
"""

import argparse
import csv
import gzip
import json
import random
import shutil
import time
from pathlib import Path
from typing import Any

import torch

from examples.paper.cells import ROWS, SHARED, Study, word_vectors
from examples.paper.claims import claims
from examples.paper.published import COLUMNS, paper
from examples.paper.report import AVERAGE, Table, chart, collect, markdown
from examples.paper.systems import SECTIONS, inference_files
from sbert import Transformer
from sbert.evaluation import write_line

PARTS = ("stsb", "sts", "sick", "nli", "senteval", "afs", SECTIONS, "vectors")
# Number of rows of each file with --quick.
SAMPLED = {"stsb": 300, "sts": 100, "sick": 300, "nli": 500, "senteval": 300, "afs": 60, SECTIONS: 300}
# Options that must not change between runs into one folder.
FIXED = ("data", "backbone", "quick", "hidden", "dtype", "learning_rate")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--backbone", required=True, metavar="A,B", help="transformers: names or folders")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--tables", default="1,2,3,4,5,6,7", help="table numbers, separated by commas")
    parser.add_argument("--quick", action="store_true", help="use small samples of the data")
    parser.add_argument("--seeds", type=int, help="trainings of each system: 3, or 2 with --quick; the paper has 10")
    parser.add_argument("--learning-rate", type=float, help="of transformers: 2e-5 as in the paper, 1e-4 with --quick")
    parser.add_argument("--hidden", type=int, help="width of the LSTM: 2048 as InferSent's, 256 with --quick")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32", help="of training")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    quick = options.quick
    options.seeds = options.seeds or (2 if quick else 3)
    options.learning_rate = options.learning_rate or (1e-4 if quick else 2e-5)  # Few steps need a high learning rate.
    options.hidden = options.hidden or (256 if quick else 2048)
    known = {str(number) for number in ROWS}
    if unknown := set(options.tables.split(",")) - known:
        parser.error(f"--tables: {', '.join(sorted(unknown))} is unknown; pass some of {', '.join(sorted(known))}")
    if not options.data.is_dir():
        parser.error(f"--data: {options.data} is not a folder; pass the folder of the data")
    options.data = options.data.resolve()
    options.output.mkdir(parents=True, exist_ok=True)
    file, fixed = options.output / "settings.json", {name: str(getattr(options, name)) for name in FIXED}
    if not file.exists():
        file.write_text(json.dumps(fixed), encoding="utf-8")
    if (before := json.loads(file.read_text(encoding="utf-8"))) != fixed:
        parser.error(f"{options.output} was created with {before}, not {fixed}; pass another --output")
    return options


def sample(data: Path, folder: Path) -> Path:
    """A copy of the folder with a random sample of the rows of each table."""
    if folder.exists():
        return folder
    half = folder.with_suffix(".half")
    shutil.rmtree(half, ignore_errors=True)
    for part, most in SAMPLED.items():
        for path in sorted(inference_files(data) if part == "nli" else (data / part).rglob("*.*")):
            target = half / str(path.relative_to(data)).removesuffix(".gz")
            target.parent.mkdir(parents=True, exist_ok=True)
            if part in ("afs", SECTIONS) and path.suffix == ".csv":
                sample_csv(path, target, most)
                continue
            if ".tsv" not in path.suffixes:  # Another format: copied as it is.
                shutil.copy(path, target.with_name(path.name))
                continue
            with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8", newline="\n") as file:
                header, *rows = file
            chosen = random.Random(0).sample(range(len(rows)), min(most, len(rows)))
            target.write_text(header + "".join(rows[row] for row in sorted(chosen)), encoding="utf-8", newline="\n")
    half.rename(folder)
    return folder


def sample_csv(path: Path, target: Path, most: int) -> None:
    """A random sample of the rows of a CSV file of any encoding."""
    with path.open(encoding="latin-1", newline="") as file, target.open("w", encoding="latin-1", newline="") as copy:
        header, *rows = csv.reader(file)
        csv.writer(copy).writerows([header, *random.Random(0).sample(rows, min(most, len(rows)))])


def whole_lines(path: Path) -> list[dict[str, Any]]:
    """The results so far; the incomplete line of a process that was killed is removed."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    kept = [line for line in lines if line.endswith("\n")]
    if kept != lines:
        path.write_text("".join(kept), encoding="utf-8")
    return [json.loads(line) for line in kept]


def preface(options: argparse.Namespace, missing: list[str]) -> list[str]:
    """The notes above all tables."""
    names = ", ".join(Path(name).name for name in options.backbone.split(","))
    said = [f"Backbone {names}, {options.device}, vectors in float32; seeds: {options.seeds}."]
    said[0] += " The paper's figures are in brackets; ± is the standard deviation over seeds; the best are bold."
    if options.quick:
        said.append("Quick: small samples, which test the program, not the quality; so no comparison is decided.")
    if options.vectors is not None:
        said.append(f"Word vectors: {options.vectors.name}. The averaging network is not in the paper.")
    if missing:
        said.append(f"Missing data: {', '.join(missing)}; what needs them is skipped.")
    return said


def main() -> None:
    """Measure what has no result yet, and print the tables."""
    options = arguments()
    missing = [part for part in PARTS if not (options.data / part).is_dir()]
    options.vectors, options.fasttext = word_vectors(options.data), word_vectors(options.data, "*.vec*")
    if options.fasttext is None:
        missing.append("fastText's vectors")
    if options.quick:
        options.data = sample(options.data, options.output / "sample")
    wanted, backbones = sorted(map(int, options.tables.split(","))), options.backbone.split(",")
    results: list[dict[str, Any]] = []
    papers: dict[str, tuple[str, str]] = {}  # By what is added to a row's name: the paper's kind and size.
    for place, backbone in enumerate(backbones):
        of_backbone = argparse.Namespace(**{**vars(options), "backbone": backbone})
        added = f" [{Path(backbone).name}]" if backbones[1:] else ""
        if added in papers:
            raise SystemExit(f"two backbones are named {Path(backbone).name}; rename one of the folders")
        if added:
            of_backbone.output = options.output / Path(backbone).name
        papers[added] = like(backbone)
        for result in measured(of_backbone, wanted, shared=place == 0):
            row = result["system"]
            results.append({**result, "system": row if row in SHARED else row + added})
    written = ["# The paper's tables", *preface(options, missing)]
    for number in wanted:
        rows = [
            (row if row in SHARED else row + added, paper(number, row, *about))
            for row in ROWS[number]
            for added, about in (list(papers.items())[:1] if row in SHARED else papers.items())
        ]
        table = collect([result for result in results if result["seed"] < options.seeds], number, rows)
        if table.rows:
            table.notes += [] if options.quick else claims(table)
            written.append(markdown(table))
            draw(table, options.output / f"table{number}.png")
    text = "\n\n".join(written)
    (options.output / "tables.md").write_text(text, encoding="utf-8")
    print(f"\n{text}")


def measured(options: argparse.Namespace, wanted: list[int], shared: bool) -> list[dict[str, Any]]:
    """The results with one backbone; what has none yet is measured. ``shared``: also of rows without a transformer."""
    options.output.mkdir(parents=True, exist_ok=True)
    file = options.output / "results.jsonl"
    results, study = whole_lines(file), Study(options)
    done = [result["cell"] for result in results]
    for number in wanted:
        for cell in study.cells(number):
            if cell.key in done or (cell.system in SHARED and not shared):
                continue
            start = time.perf_counter()
            figures = cell.measure()
            about = {"cell": cell.key, "table": number, "system": cell.system, "seed": cell.seed}
            write_line(file, {**about, "figures": figures, "seconds": round(time.perf_counter() - start, 1)})
            results = whole_lines(file)
            said = ", ".join(f"{name} {figure:,.4g}" for name, figure in figures.items())
            print(f"table {number}, {cell.system}, seed {cell.seed}: {said}", flush=True)
    return results


def like(backbone: str) -> tuple[str, str]:
    """The paper's system with such a backbone, and its size."""
    config = Transformer(backbone).auto_model.config
    return "SRoBERTa" if "roberta" in config.model_type else "SBERT", "large" if config.hidden_size >= 1024 else "base"


def draw(table: Table, path: Path) -> None:
    """Draw the chart of a table; of the averages, if it has them."""
    columns = {1: ["STSb", "SICK-R", AVERAGE], 5: [AVERAGE]}.get(table.number, COLUMNS[table.number])
    chart(table, path, [column for column in columns if column in table.columns])


if __name__ == "__main__":
    main()
