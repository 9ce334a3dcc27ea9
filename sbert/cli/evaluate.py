"""``sbert evaluate``: evaluate a model on the standard data sets in a folder.

sbert evaluate --suite sts,retrieval --data data --output results.csv
"""

from __future__ import annotations

import argparse
import json
import math
import textwrap
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sbert.cli.options import LOADING, add_options, at_least, load_by_options, names, progress
from sbert.cli.output import table
from sbert.data import read_retrieval
from sbert.data.retrieval_data import is_retrieval
from sbert.data.tables import check_folder

if TYPE_CHECKING:
    from sbert.evaluation import Evaluator, ModelVectors

_TRANSFER = "the transfer tasks of SentEval are in examples/paper/transfer.py"
# The metrics in the table of NanoBEIR; --json and --output have all.
_SHOWN = ("ndcg@10", "mrr@10", "map@100", "recall@10", "accuracy@1", "base_ndcg@10")


# -------------------------------------------------------------------------------------------------------- suites


def _build(suite: str, arguments: argparse.Namespace) -> Evaluator:
    """The evaluator of a suite."""
    from sbert import evaluation

    root = Path(arguments.data)
    check_folder(root)
    prompts = {"query_prompt": arguments.query_prompt, "document_prompt": arguments.document_prompt}
    if suite == "sts":
        return evaluation.STSSuite(root, prompt=arguments.prompt)
    if suite == "nanobeir":
        folder = root / "nanobeir"
        return evaluation.NanoBEIRSuite(folder if folder.is_dir() else root, rerank=arguments.rerank, **prompts)
    if arguments.cross_encoder:
        raise ValueError("a cross-encoder cannot search a corpus, as --suite retrieval does; leave it out")
    folders = [root] if is_retrieval(root) else [path for path in sorted(root.iterdir()) if is_retrieval(path)]
    if not folders:
        raise FileNotFoundError(f"neither {root} nor a folder in it has a corpus with qrels; pass another folder")
    sets = {path.resolve().name: read_retrieval(path) for path in folders}
    return evaluation.SequentialEvaluator(
        {name: evaluation.RetrievalEvaluator(*data, **prompts) for name, data in sets.items()}
    )


SUITES = {
    "sts": "Spearman on STS12-16, STSb and SICK-R: sts/STS12/*.tsv, stsb/test.tsv, sick/test.tsv; or SentEval's",
    "retrieval": "nDCG, MAP, MRR, recall: a folder in BEIR's layout, or several such folders",
    "nanobeir": "the same on NanoBEIR, with the mean: repositories of the hub such as"
    " sentence-transformers/NanoBEIR-en, in Parquet or JSONL. With --cross-encoder, of BM25's best --rerank documents",
}
# The suites that use each prompt.
_SEARCHES = {"retrieval", "nanobeir"}
_USED = {"prompt": {"sts"}, "query_prompt": _SEARCHES, "document_prompt": _SEARCHES}


# ------------------------------------------------------------------------------------------------------- command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``sbert evaluate``.

    Example:
        >>> import argparse
        >>> from sbert.cli.evaluate import add_arguments
        >>> parser = argparse.ArgumentParser()
        >>> add_arguments(parser)
        >>> parser.parse_args(["--suite", "sts,retrieval", "--data", "data"]).suite
        ['sts', 'retrieval']
    """
    lines = [f"  {name:11}{about}" for name, about in SUITES.items()]
    suites = [textwrap.fill(line, 79, subsequent_indent=" " * 13) for line in lines]
    processes = "several processes: torchrun --nproc-per-node 2 -m sbert evaluate ..."
    parser.epilog = "\n".join(["suites, and their files in DIR:", *suites, f"{_TRANSFER};", processes])
    add = parser.add_argument
    add_options(parser, "model", *LOADING, "--devices", "--json", "--quiet")
    add("--suite", required=True, type=_parse_suites, metavar="A,B", help="suites, see below")
    add("--data", required=True, metavar="DIR", help="folder of the data")
    add("--cross-encoder", action="store_true", help="a cross-encoder (sts and nanobeir)")
    add("--rerank", type=at_least(1), default=100, metavar="K", help="documents that it reranks (100)")
    add("--prompt", help="of the texts of sts: a name or a text")
    add("--query-prompt", metavar="PROMPT", help="of the queries of retrieval and nanobeir")
    add("--document-prompt", metavar="PROMPT", help="of the documents of retrieval and nanobeir")
    add("--output", metavar="FILE", help="append the results to this file: .csv, else JSONL")


def _parse_suites(text: str) -> list[str]:
    suites = dict.fromkeys(names(text))
    if unknown := [name for name in suites if name not in SUITES]:
        remedy = f"pass one or more of {', '.join(SUITES)}; {_TRANSFER}"
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is unknown; {remedy}")
    return list(suites)


def run(arguments: argparse.Namespace) -> None:
    """Run ``sbert evaluate``.

    Raises:
        FileNotFoundError: If the folder lacks the data of a suite.
        ValueError: If the data is invalid, or a suite cannot evaluate this kind of model.
    """
    # The data is checked before the model is loaded, which takes long.
    _check_options(arguments)
    suites = {name: _build(name, arguments) for name in arguments.suite}
    from sbert.evaluation import SequentialEvaluator, write_line

    vectors = _load_vectors(arguments)
    metrics = SequentialEvaluator(suites).measure(vectors)
    if not vectors.ranks.first:
        return
    missing = {name: list(getattr(suite, "missing", ())) for name, suite in suites.items()}
    if arguments.json:
        finite = {name: None if math.isnan(value) else value for name, value in metrics.items()}
        print(json.dumps({"model": arguments.model, "metrics": finite, "missing": missing}, indent=2))
    else:
        print(_report(metrics, missing, arguments.data))
    if arguments.output is not None:  # Last: the results are printed even if the file cannot be written.
        head = {"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "model": arguments.model}
        write_line(arguments.output, {**head, "evaluator": ",".join(suites), **metrics})


def _check_options(arguments: argparse.Namespace) -> None:
    """Raise a ValueError for a prompt that no suite uses."""
    for option, suites in _USED.items():
        is_used = not arguments.cross_encoder and suites & {*arguments.suite}
        if getattr(arguments, option) is not None and not is_used:
            name = option.replace("_", "-")
            raise ValueError(f"--{name} is for encoders and --suite {', '.join(sorted(suites))}; leave it out")


def _load_vectors(arguments: argparse.Namespace) -> ModelVectors:
    """The vectors of the model, computed by a pool, or by the processes of torchrun together, each on its own GPU."""
    from sbert.cross_encoder import CrossEncoder
    from sbert.distributed.ranks import ALONE, Ranks
    from sbert.evaluation import ModelVectors

    model = load_by_options(arguments, CrossEncoder if arguments.cross_encoder else None)
    ranks = ALONE if arguments.devices else Ranks.join(model.device.type)
    if not arguments.devices:
        ranks.place(model)
    return ModelVectors(model, ranks, show_progress_bar=progress(arguments))


def _report(metrics: Mapping[str, float], missing: Mapping[str, list[str]], folder: str) -> str:
    """The results in percent: one block per suite, under its name."""
    blocks = []
    for suite, absent_sets in missing.items():
        start = f"{suite}_"
        percent = {name: f"{100 * value:.2f}" for name, value in metrics.items() if name.startswith(start)}
        of_suite = {name.removeprefix(start): value for name, value in percent.items()}
        block = _tabulate(of_suite) if suite == "nanobeir" else table(of_suite.items(), (suite, "percent"))
        blocks.append(block + (f"\nnot in {folder}: {', '.join(absent_sets)}" if absent_sets else ""))
    return "\n\n".join(blocks)


def _tabulate(metrics: Mapping[str, str]) -> str:
    """The metrics of NanoBEIR: one line per data set, and their mean."""
    columns = [metric for metric in _SHOWN if f"mean_{metric}" in metrics]
    sets = {name.rpartition("_")[0].removesuffix("_base"): None for name in metrics}
    names = [*(name for name in sets if name != "mean"), "mean"]
    rows = [[name.removeprefix("Nano"), *(metrics[f"{name}_{column}"] for column in columns)] for name in names]
    return table(rows, ("nanobeir", *columns))
