"""The results: one table, and advice in plain words."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from functools import partial

from sbert.cli.output import table
from sbert.cli.recommend.collection import Collection
from sbert.cli.recommend.systems import System
from sbert.evaluation import Difference, paired_bootstrap

_HEADER = ("system", "nDCG", "to best", "recall", "docs/s", "ms", "MB", "GB/1M")
_LEGEND = (
    "nDCG@10 and recall@100 in percent; to best: the difference and its 95 % interval; ms per query; MB of the model;"
    " GB of the index for 1,000,000 documents."
)
_RUN = "Run: "
# With fewer queries, an interval says little.
_QUERIES = 10
# Of systems whose costs differ by no more than this factor, the one with the higher nDCG is recommended.
_CHEAPER = 1.5
# From this fraction of the documents on, what a model does not read is worth a note.
_LONG = 0.1


def report(collection: Collection, systems: list[System], failed: Mapping[str, str]) -> str:
    """The table, what was not measured, and the advice."""
    ordered = _ordered(systems)
    rows = []
    for system in ordered:
        gap = _gap(system, ordered[0])
        rows.append(
            (
                system.name,
                f"{100 * system.ndcg.mean():.1f}",
                "" if gap is None else f"{100 * gap.mean:.1f} ±{50 * (gap.high - gap.low):.1f}",
                f"{100 * system.recall:.1f}",
                f"{1 / max(system.document_seconds, 1e-9):,.0f}",
                f"{1000 * system.query_seconds:.1f}",
                f"{system.model_bytes / 1e6:,.0f}",
                f"{system.index_bytes / 1e3:.2f}",
            )
        )
    notes = [f"{name}: not measured: {reason}" for name, reason in failed.items()]
    notes += [
        f"{system.name}: {system.truncated:.0%} of the documents are longer than what it reads; split them"
        for system in ordered
        if system.truncated > _LONG
    ]
    parts = [_wrapped([collection.about]), table(rows, _HEADER), *map(_wrapped, ([_LEGEND], notes, advice(systems)))]
    return "\n\n".join(filter(None, parts))


def _wrapped(lines: list[str]) -> str:
    """Lines of at most 80 columns, but for the command or code in the last line of the advice."""
    fill = partial(textwrap.fill, width=80, break_long_words=False, break_on_hyphens=False)
    return "\n".join(line if line.startswith(_RUN) else fill(line) for line in lines)


def as_json(collection: Collection, systems: list[System], failed: Mapping[str, str]) -> str:
    """The same for programs, with fractions instead of percent."""
    ordered, records = _ordered(systems), []
    for system in ordered:
        gap = _gap(system, ordered[0])
        records.append(
            {
                "name": system.name,
                "kind": system.kind,
                "model": system.model,
                "ndcg@10": float(system.ndcg.mean()),
                "recall@100": system.recall,
                "to_best": None if gap is None else gap._asdict(),
                "documents_per_second": 1 / max(system.document_seconds, 1e-9),
                "seconds_per_query": system.query_seconds,
                "model_bytes": system.model_bytes,
                "index_bytes_per_document": system.index_bytes,
                "run": code(system),
            }
        )
    about = {"about": collection.about, "queries": len(collection.queries), "documents": len(collection.documents)}
    return json.dumps({**about, "systems": records, "failed": dict(failed), "advice": advice(systems)}, indent=2)


def advice(systems: list[System]) -> list[str]:
    """At most five lines: the best, the cheapest that is not worse, words, reranking, and what to run."""
    best, *others = _ordered(systems)
    count = len(best.ndcg)
    alike = [system for system in others if not _visible(best, system)]
    least = min(map(_cost, (best, *alike)))
    cheap = next(system for system in (best, *alike) if _cost(system) <= _CHEAPER * least)
    lines = [f"Best: {best.name}, nDCG@10 {100 * best.ndcg.mean():.1f}."]
    if count < _QUERIES:
        lines[0] += f" But so few queries ({count}) cannot compare systems."
    elif alike:
        lines[0] += f" With {count} queries, no difference from {_listed(alike)} is visible."
    if cheap is not best:
        times = f"{1000 * cheap.query_seconds:.1f} ms per query instead of {1000 * best.query_seconds:.1f}"
        lines.append(f"Cheapest that is not visibly worse: {cheap.name}, {times}.")
    both = next((system for system in (best, *others) if system.kind == "hybrid"), None)
    if both is not None:
        gains = (f"{_gain(both, part)} compared with {part.name}" for part in both.parts)
        lines.append(f"Words and vectors together: {', '.join(gains)}.")
    reranked = next((system for system in (best, *others) if system.kind == "reranked"), None)
    if reranked is not None:
        base = reranked.parts[0]
        times = f"{reranked.query_seconds / max(base.query_seconds, 1e-9):.0f} times as long per query"
        lines.append(f"Reranking: {_gain(reranked, base)} compared with {base.name}, and takes {times}.")
    return [*lines, f"{_RUN}{code(cheap)}"]


def _gain(more: System, less: System) -> str:
    gain = f"{100 * float((more.ndcg - less.ndcg).mean()):+.1f}"
    return gain if _visible(more, less) else f"{gain} (not visible)"


def _listed(systems: list[System]) -> str:
    names = [system.name for system in systems[:3]]
    return ", ".join(names) + (f" and {len(systems) - 3} more" if len(systems) > 3 else "")


def code(system: System) -> str:
    """The command that searches this way."""
    if system.kind == "reranked":
        return f"{code(system.parts[0])}, and rerank with {system.model}"
    words = next((part for part in (system, *system.parts) if part.kind == "words"), None)
    options = [] if words is None else ["--words" if words is system else "--hybrid"]
    options += ["--language", words.model] if words is not None and words.model is not None else []
    return " ".join(["sbert search", *options, *([] if words is system else [str(system.model)]), 'FILE "QUERY"'])


def _ordered(systems: list[System]) -> list[System]:
    return sorted(systems, key=lambda system: -system.ndcg.mean())


def _cost(system: System) -> float:
    """Seconds to add a document and to answer a query."""
    return system.document_seconds + system.query_seconds


def _gap(system: System, best: System) -> Difference | None:
    """The difference from the best system; None for that itself, or if there is only one query."""
    return None if system is best or len(best.ndcg) < 2 else paired_bootstrap(system.ndcg, best.ndcg)


def _visible(one: System, two: System) -> bool:
    return len(one.ndcg) >= _QUERIES and paired_bootstrap(one.ndcg, two.ndcg).visible
