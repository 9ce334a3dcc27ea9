"""``sbert info``: what a model consists of; whether its vectors are those of its save.

sbert info sbert-mini
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from sbert.cli.options import LOADING, add_options, load_by_options
from sbert.cli.output import facts_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``sbert info``."""
    add_options(parser, "model", *LOADING, "--json")


def run(arguments: argparse.Namespace) -> None:
    """Run ``sbert info``."""
    from sbert.saving import verification

    model = load_by_options(arguments)
    dtypes = {str(parameter.dtype).removeprefix("torch.") for parameter in model.parameters()}
    count = sum(parameter.numel() for parameter in model.parameters())
    note = getattr(getattr(model[0], "_tokenizer", None), "sbert_note", None)
    facts: dict[str, object] = {
        "modules": [" ".join(repr(module).split()) for module in model],
        "dim": model.get_sentence_embedding_dimension(),
        "max_seq_length": model.max_seq_length,
        **({"tokenizer": note} if note else {}),
        "similarity": model.similarity_fn_name,
        "language": model.language,
        "prompts": model.prompts,
        "default_prompt_name": model.default_prompt_name,
        "parameters": count,
        "dtype": ", ".join(sorted(dtypes)),
        "device": str(model.device),
        "versions": verification.versions(),
    }
    verified = model.verify() if model.has_reference else None
    if arguments.json:
        facts["verification"] = None if verified is None else {**asdict(verified), "ok": verified.ok}
        print(json.dumps(facts, ensure_ascii=False, indent=2))
        return
    facts["parameters"] = f"{count:,}"
    facts["prompts"] = [f"{name}: {prompt!r}" for name, prompt in model.prompts.items()]
    facts["versions"] = [f"{name} {number}" for name, number in verification.versions().items()]
    facts["verification"] = "no reference vectors; save() writes some" if verified is None else str(verified)
    print(facts_table(facts))
