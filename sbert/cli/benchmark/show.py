"""The results of a benchmark as a table and as a chart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sbert.visualization.formats import check_plot

_NOTES = {
    "sbert-in-order": "ours, batches of 32 in input order",
    "padded-in-order": "padded batches of 32 in input order",
}


def table(result: dict[str, Any]) -> str:
    """Format the results of ``benchmark`` as text.

    Args:
        result: The return value of ``benchmark``.
    """
    facts, ceilings = result["facts"], result["ceilings"]
    lines = [f"model                {result['model']}", f"processor            {result['processor']}"]
    lines += [f"{name:20} {value}" for name, value in {**facts["diagnosis"], "versions": _list(result)}.items()]
    best = ", ".join(f"{name} {ceilings[name] / 1e9:,.0f} GFLOP/s" for name in ("float32", "bfloat16"))
    copy = f", copy {ceilings['copy'] / 1e9:,.0f} GB/s" if "copy" in ceilings else ""
    lines += [f"{'ceiling':20} {best}{copy}"]
    lines += [f"{'skipped':20} {name}: {why}" for name, why in result["skipped"].items()]
    for load, found in result["loads"].items():
        lines += ["", *_throughput(load, found, result)]
    lines += ["", f"{'single sentences, ms':36} {'p50':>8} {'p95':>8} {'p99':>8} {'ratio':>8}"]
    reference = result["single"].get("sentence-transformers", result["single"]["sbert"])["p50"]
    for name, times in result["single"].items():
        times = {**times, "ratio": reference / times["p50"]}
        lines.append(f"{_NOTES.get(name, name):36} " + " ".join(f"{value:8.2f}" for value in times.values()))
    lines += ["", f"{'process':36} {'load s':>8} {'first s':>8} {'peak MB':>8}"]
    for name, memory in result["memory"].items():
        start = result["start"][name]
        peak = (memory["gpu"] or memory["host"]) / 1e6
        lines.append(f"{_NOTES.get(name, name):36} {start['load']:8.2f} {start['first']:8.2f} {peak:8,.0f}")
    lines += ["", "sentences/s by batch_tokens"]
    sweep = result["batch_tokens"]
    for load in result["loads"]:
        lines.append(f"{load:8} " + "  ".join(f"{budget}: {speed:,.0f}" for budget, speed in sweep[load].items()))
    lines.append(f"best     {sweep['best']}")
    if "recall" in result:
        lines += ["", *_recall(result["recall"])]
    if "linear" in result:
        lines += ["", f"{'texts':>8} {'sentences/s':>12} {'peak memory grew by MB':>24} {'vectors MB':>12}"]
        for row in result["linear"]:
            sizes = f"{row['grown'] / 1e6:24,.0f} {row['vectors'] / 1e6:12,.0f}"
            lines.append(f"{row['texts']:8,} {row['sentences']:12,.0f} {sizes}")
    return "\n".join(lines)


def _recall(found: dict[str, Any]) -> list[str]:
    """One row per precision of the stored vectors."""
    about = f"best {found['top_k']} of {found['texts']} texts, {found['queries']} queries"
    rows = {"float32": {"bytes": found["bytes"], "recall": 1.0}, **found["ways"]}
    head = f"{about:36} {'bytes a vector':>14} {'recall':>8}"
    return [head, *(f"{way:36} {row['bytes']:14,} {row['recall']:8.3f}" for way, row in rows.items())]


def _list(result: dict[str, Any]) -> str:
    return ", ".join(f"{name} {number}" for name, number in result["versions"].items())


def _throughput(load: str, found: dict[str, Any], result: dict[str, Any]) -> list[str]:
    """One row per contender, then the gain from smart batching, and the ceiling of the machine."""
    about = f"{load}: {found['texts']} texts of {found['tokens']:.1f} tokens"
    head = f"{about:36} {'texts/s':>9} {'tokens/s':>10} {'ratio':>7} {'ceiling':>8} {'max diff':>9} {'min cosine':>11}"
    rows, speed = [], {name: row["sentences"] for name, row in found["contenders"].items()}
    for name, row in found["contenders"].items():
        ceiling = result["ceilings"].get(_dtype(name, result))
        # Word vectors need no operations, and the ceiling of float16 is not measured.
        part = f"{row['operations'] / ceiling:8.0%}" if ceiling and row["operations"] else f"{'-':>8}"
        rows.append(
            f"{_NOTES.get(name, name):36} {row['sentences']:9,.0f} {row['tokens']:10,.0f} {row['ratio']:7.2f}"
            f" {part} {row['difference']:9.1e} {row['cosine']:11.6f}"
        )
    # Compared in the same dtype, so that only batching differs.
    like = {"padded-in-order": "sbert-float32" if "sbert-float32" in speed else "sbert"}
    gained = [f"{speed[like.get(n, 'sbert')] / speed[n]:.2f} over {_NOTES[n]}" for n in _NOTES if speed.get(n)]
    rows += [f"smart batching: {', '.join(gained)}"] if gained else []
    base = found["contenders"][found["reference"]]["operations"]
    if base:
        floor = [f"{result['ceilings'][name] / base:.2f} ({name})" for name in ("float32", "bfloat16")]
        rows.append(f"the machine at its ceiling: {', '.join(floor)}")
    return [head, *rows]


def _dtype(name: str, result: dict[str, Any]) -> str:
    """The dtype in which a contender computes."""
    if name in ("sbert", "sbert-in-order"):
        chosen: str = result["facts"]["diagnosis"]["dtype"].split(":")[0]
        return chosen
    return "bfloat16" if "bfloat16" in name or "best" in name else "float32"


def plot(result: dict[str, Any], path: str) -> None:
    """Draw sentences per second as bars.

    Args:
        result: The return value of ``benchmark``.
        path: The image file; its extension determines the format.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If matplotlib does not know the extension.
    """
    check_plot(path)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4), layout="constrained")
    figure.suptitle(f"{Path(result['model']).name}, {result['facts']['diagnosis']['device'].split(';')[0]}")
    for axis, (load, found) in zip(figure.subplots(1, 2), result["loads"].items(), strict=True):
        names = list(found["contenders"])[::-1]
        bars = axis.barh(names, [found["contenders"][name]["sentences"] for name in names])
        axis.bar_label(bars, [f"{found['contenders'][name]['ratio']:.2f}" for name in names], padding=3)
        axis.margins(x=0.15)  # Room for the labels.
        axis.set_title(f"{load} texts")
        axis.set_xlabel(f"texts a second; the ratio to {found['reference']}")
    figure.savefig(path)
