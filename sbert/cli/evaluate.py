"""``sbert evaluate``: evaluate a model on the standard data sets in a folder."""

from __future__ import annotations

import argparse
import json
import math
import textwrap
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sbert.cli.options import add_devices, add_dtype, add_model, check_devices, names, progress
from sbert.data.nli import CLASSES
from sbert.data.retrieval import is_retrieval, read_retrieval
from sbert.data.tables import check_folder
from sbert.data.transfer import read_transfer, tasks_in

if TYPE_CHECKING:
    from sbert.evaluation import Evaluator, Vectors

_INFERENCE = ("SICK-E", "SNLI", "MNLI")


# -------------------------------------------------------------------------------------------------------- suites


def _sts(arguments: argparse.Namespace) -> Evaluator:
    from sbert.evaluation import STSSuite

    return STSSuite(arguments.data, prompt=arguments.prompt)


def _transfer(arguments: argparse.Namespace) -> Evaluator:
    from sbert.evaluation import TransferSuite

    if arguments.cross_encoder:
        raise ValueError("a cross-encoder has no vectors of single texts, which --suite transfer needs; leave it out")
    return TransferSuite(arguments.data, prompt=arguments.prompt)


def _nli(arguments: argparse.Namespace) -> Evaluator:
    from sbert.evaluation import LabelEvaluator, SequentialEvaluator, TransferSuite

    folder = arguments.data
    tasks = [name for name in _INFERENCE if name in tasks_in(folder)]
    if not tasks:
        raise FileNotFoundError(f"{folder} has no {' or '.join(_INFERENCE)}; see sbert evaluate --help")
    if not arguments.cross_encoder:
        return TransferSuite(folder, tasks, prompt=arguments.prompt)
    evaluators: dict[str, Evaluator] = {}
    for name in tasks:
        task = read_transfer(folder, name)
        first, second, labels = ([row[column] for row in task.splits["test"]] for column in (*task.columns, "label"))
        evaluators[name] = LabelEvaluator(first, second, labels)
    return SequentialEvaluator(evaluators)


def _retrieval(arguments: argparse.Namespace) -> Evaluator:
    from sbert.evaluation import RetrievalEvaluator, SequentialEvaluator

    if arguments.cross_encoder:
        raise ValueError("a cross-encoder cannot search a corpus, as --suite retrieval does; leave it out")
    root = Path(arguments.data)
    check_folder(root)
    found = [path for path in (root, *sorted(root.iterdir())) if is_retrieval(path)]
    if not found:
        raise FileNotFoundError(f"neither {root} nor a folder in it has a corpus with qrels; pass another folder")
    return SequentialEvaluator(
        {
            path.resolve().name: RetrievalEvaluator(
                *read_retrieval(path), query_prompt=arguments.query_prompt, document_prompt=arguments.document_prompt
            )
            for path in (found[:1] if root in found else found)
        }
    )


def _nanobeir(arguments: argparse.Namespace) -> Evaluator:
    from sbert.encoder import SentenceEncoder
    from sbert.evaluation import NanoBEIRSuite

    folder, retriever = Path(arguments.data), None
    if (folder / "nanobeir").is_dir():
        folder /= "nanobeir"
    check_folder(folder)
    if arguments.retriever is not None:
        retriever = SentenceEncoder(arguments.retriever, device=arguments.device, dtype=arguments.dtype)
    return NanoBEIRSuite(
        folder,
        rerank=arguments.rerank,
        retriever=retriever,
        query_prompt=arguments.query_prompt,
        document_prompt=arguments.document_prompt,
    )


SUITES: Mapping[str, tuple[Callable[[argparse.Namespace], Evaluator], str]] = {
    "sts": (
        _sts,
        "Spearman on STS12-16, STSb and SICK-R: sts/STS12/*.tsv, stsb/test.tsv, sick/test.tsv; or SentEval's",
    ),
    "transfer": (_transfer, "accuracy on MR, CR, SUBJ, MPQA, SST2, TREC, MRPC: senteval/*.tsv, or SentEval's"),
    "nli": (
        _nli,
        f"accuracy on {', '.join(_INFERENCE)}: sick/*.tsv, nli/*.tsv, snli_1.0, multinli_1.0. Of a logistic regression"
        f" of |u - v| and u * v; with --cross-encoder, of the model's own classes, which are {', '.join(CLASSES)}",
    ),
    "retrieval": (_retrieval, "nDCG, MAP, MRR, recall: a folder in BEIR's layout, or several such folders"),
    "nanobeir": (
        _nanobeir,
        "the same on NanoBEIR, with the mean: repositories of the hub such as sentence-transformers/NanoBEIR-en, in"
        " Parquet or JSONL. With --cross-encoder, of BM25's best --rerank documents, or of those of --retriever",
    ),
}
# The metrics of the table of NanoBEIR; --json and --output have all.
_SHOWN = ("ndcg@10", "mrr@10", "map@100", "recall@10", "accuracy@1", "base_ndcg@10")


# ------------------------------------------------------------------------------------------------------- command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``sbert evaluate``.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> add_arguments(parser)
        >>> parser.parse_args(["--suite", "sts,nli", "--data", "data"]).suite
        ['sts', 'nli']
    """
    parser.formatter_class = argparse.RawDescriptionHelpFormatter  # Keeps the lines of the table.
    suites = [
        textwrap.fill(f"  {name:11}{about}", 79, subsequent_indent=" " * 13) for name, (_, about) in SUITES.items()
    ]
    parser.epilog = "\n".join(["suites, and their files in DIR:", *suites])
    parser.epilog += "\n\nseveral processes: torchrun --nproc-per-node 2 -m sbert evaluate ..."
    add_model(parser)
    add_devices(parser)
    add_dtype(parser)
    parser.add_argument("--suite", required=True, type=_suites, metavar="A,B", help="suites, see below")
    parser.add_argument("--data", required=True, metavar="DIR", help="folder of the data")
    parser.add_argument(
        "--cross-encoder", action="store_true", help="the model is a cross-encoder (sts, nli and nanobeir)"
    )
    parser.add_argument("--retriever", metavar="MODEL", help="finds what a cross-encoder reranks (nanobeir)")
    parser.add_argument("--rerank", type=int, default=100, metavar="K", help="documents that it reranks (100)")
    parser.add_argument("--prompt", help="prompt of the texts of sts, transfer and nli: a name or a text")
    parser.add_argument("--query-prompt", metavar="PROMPT", help="prompt of the queries of retrieval and nanobeir")
    parser.add_argument("--document-prompt", metavar="PROMPT", help="prompt of the documents of retrieval and nanobeir")
    parser.add_argument("--output", metavar="FILE", help="append the results to this file: .csv, else JSONL")
    parser.add_argument("--json", action="store_true", help="print JSON, with fractions instead of percent")
    parser.add_argument("--quiet", action="store_true", help="no progress bars")


def _suites(text: str) -> list[str]:
    named = list(dict.fromkeys(names(text)))
    for name in named:
        if name not in SUITES:
            raise argparse.ArgumentTypeError(f"{name!r} is unknown; pass one or more of {', '.join(SUITES)}")
    return named


def run(arguments: argparse.Namespace) -> None:
    """Run ``sbert evaluate``.

    Raises:
        FileNotFoundError: If the folder lacks the data of a suite.
        ValueError: If the data is invalid, or a suite cannot evaluate this kind of model.
    """
    # The data is checked before the model is loaded, which takes long.
    _check_prompts(arguments)
    suites = {name: SUITES[name][0](arguments) for name in arguments.suite}
    from sbert.evaluation import SequentialEvaluator, write_line

    vectors = _vectors(arguments)
    figures = SequentialEvaluator(suites).measure(vectors)
    if not vectors.ranks.first:
        return
    missing = {name: list(getattr(suite, "missing", ())) for name, suite in suites.items()}
    if arguments.json:
        finite = {name: None if math.isnan(value) else value for name, value in figures.items()}
        print(json.dumps({"model": arguments.model, "figures": finite, "missing": missing}, indent=2))
    else:
        print(_report(figures, missing, arguments.data))
    if arguments.output is not None:  # Last: the results are printed even if the file cannot be written.
        named = {"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "model": arguments.model}
        write_line(arguments.output, {**named, "evaluator": ",".join(suites), **figures})


def _check_prompts(arguments: argparse.Namespace) -> None:
    """Raise a ValueError for a prompt, or a retriever, that no suite uses."""
    if arguments.retriever is not None and not (arguments.cross_encoder and "nanobeir" in arguments.suite):
        raise ValueError("--retriever finds what a cross-encoder reranks: pass --suite nanobeir --cross-encoder, too")
    searches = {"retrieval", "nanobeir"}
    retrieval, others = bool(searches & {*arguments.suite}), set(arguments.suite) - searches
    for option, is_used in (("prompt", bool(others)), ("query_prompt", retrieval), ("document_prompt", retrieval)):
        if getattr(arguments, option) is None:
            continue
        name = f"--{option.replace('_', '-')}"
        if arguments.cross_encoder:
            raise ValueError(f"a cross-encoder uses its own default prompt; leave {name} out")
        if not is_used:
            raise ValueError(f"none of the suites {', '.join(arguments.suite)} uses {name}; leave it out")


def _vectors(arguments: argparse.Namespace) -> Vectors:
    """The vectors of the model, computed by a pool, or by the processes of torchrun together, each on its own GPU."""
    from sbert.cross_encoder import CrossEncoder
    from sbert.distributed.ranks import Ranks
    from sbert.encoder import SentenceEncoder
    from sbert.evaluation import Vectors

    kind: Any = CrossEncoder if arguments.cross_encoder else SentenceEncoder
    check_devices(arguments)
    model = kind(arguments.model, device=arguments.device, dtype=arguments.dtype)
    if arguments.devices:  # The pool ends with the command.
        return Vectors(model.pool(arguments.devices), show_progress_bar=progress(arguments))
    ranks = Ranks.join(model.device.type)
    ranks.place(model)
    return Vectors(model, ranks, show_progress_bar=progress(arguments))


def _report(figures: Mapping[str, float], missing: Mapping[str, list[str]], folder: str) -> str:
    """The results in percent: one block per suite, under its name."""
    width = max(map(len, figures))
    blocks = []
    for suite, absent in missing.items():
        own = {name.removeprefix(f"{suite}_"): x for name, x in figures.items() if name.startswith(f"{suite}_")}
        lines = [suite, *(f"{name:{width}} {100 * value:6.2f}" for name, value in own.items())]
        if suite == "nanobeir":
            lines = [suite, *_table(own)]
        blocks.append("\n".join(lines + ([f"not in {folder}: {', '.join(absent)}"] if absent else [])))
    return "\n\n".join(blocks)


def _table(figures: Mapping[str, float]) -> list[str]:
    """The figures of NanoBEIR in percent: one line per data set, and their mean."""
    columns = [metric for metric in _SHOWN if f"mean_{metric}" in figures]
    ending = f"_{columns[0]}"
    sets = [
        name.removesuffix(ending) for name in figures if name.endswith(ending) and not name.endswith(f"_base{ending}")
    ]
    width = max(map(len, sets))
    head = " " * width + "".join(f"{column:>14}" for column in columns)
    rows = {name: [100 * figures[f"{name}_{column}"] for column in columns] for name in (*sets[1:], sets[0])}
    return [head, *(f"{name:{width}}" + "".join(f"{x:14.2f}" for x in own) for name, own in rows.items())]  # Mean last.
