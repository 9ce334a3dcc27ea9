"""The results of a benchmark as tables and as a chart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sbert.cli.output import facts_table, table

_NOTES = {
    "sbert-in-order": "ours, batches of 32 in input order",
    "padded-in-order": "padded batches of 32 in input order",
}


def report(result: dict[str, Any]) -> str:
    """Format the results of ``benchmark`` as text.

    Args:
        result: The return value of ``benchmark``.
    """
    blocks = [facts_table(_facts(result))]
    blocks += [_throughput(load, found, result) for load, found in result["loads"].items()]
    single = result["single"]
    reference = single.get("sentence-transformers", single["sbert"])["p50"]
    rows = [
        (_NOTES.get(name, name), *(f"{x:.2f}" for x in (*times.values(), reference / times["p50"])))
        for name, times in single.items()
    ]
    blocks.append(table(rows, ["single sentences, ms", "p50", "p95", "p99", "ratio"]))
    rows = []
    for name, memory in result["memory"].items():
        start, peak = result["start"][name], (memory["gpu"] or memory["host"]) / 1e6
        rows.append((_NOTES.get(name, name), f"{start['load']:.2f}", f"{start['first']:.2f}", f"{peak:,.0f}"))
    blocks.append(table(rows, ["process", "load s", "first s", "peak MB"]))
    sweep = result["batch_tokens"]
    rows = [(load, *(f"{speed:,.0f}" for speed in sweep[load].values())) for load in result["loads"]]
    blocks.append(f"{table(rows, ['sentences/s by batch_tokens', *sweep['short']])}\nbest: {sweep['best']}")
    if "recall" in result:
        blocks.append(_recall(result["recall"]))
    if "linear" in result:
        rows = [
            (
                f"{row['texts']:,}",
                f"{row['sentences']:,.0f}",
                *(f"{row[name] / 1e6:,.0f}" for name in ("grown", "vectors")),
            )
            for row in result["linear"]
        ]
        blocks.append(table(rows, ["texts", "sentences/s", "peak memory grew by MB", "vectors MB"]))
    return "\n\n".join(blocks)


def _facts(result: dict[str, Any]) -> dict[str, object]:
    """The machine, and how the model runs on it."""
    ceilings = result["ceilings"]
    speeds = [f"{name} {ceilings[name] / 1e9:,.0f} GFLOP/s" for name in ("float32", "bfloat16")]
    if "copy" in ceilings:
        speeds.append(f"copy {ceilings['copy'] / 1e9:,.0f} GB/s")
    facts = {"model": result["model"], "processor": result["processor"], **result["facts"]["diagnosis"]}
    facts["versions"] = ", ".join(f"{name} {number}" for name, number in result["versions"].items())
    facts["ceiling"] = ", ".join(speeds)
    if result["skipped"]:
        facts["skipped"] = [f"{name}: {why}" for name, why in result["skipped"].items()]
    return facts


def _recall(found: dict[str, Any]) -> str:
    """One row per precision of the stored vectors."""
    about = f"best {found['top_k']} of {found['texts']} texts, {found['queries']} queries"
    ways = {"float32": {"bytes": found["bytes"], "recall": 1.0}, **found["ways"]}
    rows = [(way, f"{row['bytes']:,}", f"{row['recall']:.3f}") for way, row in ways.items()]
    return table(rows, [about, "bytes per vector", "recall"])


def _throughput(load: str, found: dict[str, Any], result: dict[str, Any]) -> str:
    """One row per contender, then the gain from smart batching, and the ceiling of the machine."""
    rows, speed = [], {name: row["sentences"] for name, row in found["contenders"].items()}
    for name, row in found["contenders"].items():
        ceiling = result["ceilings"].get(_dtype(name, result))
        # Word vectors need no operations, and the ceiling of float16 is not measured.
        part = f"{row['operations'] / ceiling:.0%}" if ceiling and row["operations"] else "-"
        speeds = (f"{row['sentences']:,.0f}", f"{row['tokens']:,.0f}", f"{row['ratio']:.2f}", part)
        rows.append((_NOTES.get(name, name), *speeds, f"{row['difference']:.1e}", f"{row['cosine']:.6f}"))
    about = f"{load}: {found['texts']} texts of {found['tokens']:.1f} tokens"
    lines = [table(rows, [about, "texts/s", "tokens/s", "ratio", "ceiling", "max diff", "min cosine"])]
    # Compared in the same dtype, so that only batching differs.
    like = {"padded-in-order": "sbert-float32" if "sbert-float32" in speed else "sbert"}
    gained = [f"{speed[like.get(n, 'sbert')] / speed[n]:.2f} over {_NOTES[n]}" for n in _NOTES if speed.get(n)]
    if gained:
        lines.append(f"smart batching: {', '.join(gained)}")
    if base := found["contenders"][found["reference"]]["operations"]:
        most = [f"{result['ceilings'][name] / base:.2f} ({name})" for name in ("float32", "bfloat16")]
        lines.append(f"the machine at its ceiling: {', '.join(most)}")
    return "\n".join(lines)


def _dtype(name: str, result: dict[str, Any]) -> str:
    """The dtype in which a contender computes."""
    if name in ("sbert", "sbert-in-order"):
        return str(result["facts"]["diagnosis"]["dtype"]).split(":")[0]
    return "bfloat16" if "bfloat16" in name or "best" in name else "float32"


def plot(result: dict[str, Any], path: str) -> None:
    """Draw sentences per second as bars.

    Args:
        result: The return value of ``benchmark``.
        path: The image file; its extension determines the format.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4), layout="constrained")
    figure.suptitle(f"{Path(result['model']).name}, {result['facts']['diagnosis']['device'].split(';')[0]}")
    for axis, (load, found) in zip(figure.subplots(1, 2), result["loads"].items(), strict=True):
        names = list(found["contenders"])[::-1]
        bars = axis.barh(names, [found["contenders"][name]["sentences"] for name in names])
        axis.bar_label(bars, [f"{found['contenders'][name]['ratio']:.2f}" for name in names], padding=3)
        axis.margins(x=0.15)  # Room for the labels.
        axis.set_title(f"{load} texts")
        axis.set_xlabel(f"texts per second; the ratio to {found['reference']}")
    figure.savefig(path)
