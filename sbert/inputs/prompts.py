"""Prompts that are put before texts: given by name or as text, for all columns or by column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sbert.inputs.arguments import nearest_argument

# Common names of the prompts for queries and documents, in the order in which they are looked up.
ROLES: dict[str, tuple[str, ...]] = {"query": ("query",), "document": ("document", "passage", "corpus")}

# A prompt is given by its name in the model or as text; one for all columns, or one per column.
Prompts = str | Mapping[str, str]


def default_prompt(model: Any) -> str:
    """The prompt that ``encode`` puts before every text by default; empty if there is none.

    Example:
        >>> from sbert import SentenceEncoder
        >>> from sbert.inputs.prompts import default_prompt
        >>> model = SentenceEncoder()
        >>> default_prompt(model)
        ''
    """
    name = getattr(model, "default_prompt_name", None)
    return "" if name is None else str((getattr(model, "prompts", None) or {}).get(name, ""))


def with_role_prompt(prompts: Mapping[str, str], role: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options of ``encode``, with the prompt for a role unless they choose one.

    Example:
        >>> from sbert.inputs.prompts import with_role_prompt
        >>> with_role_prompt({"passage": "passage: "}, "document", {"batch_size": 2})
        {'batch_size': 2, 'prompt_name': 'passage'}
    """
    if options.get("prompt") is not None or options.get("prompt_name") is not None:
        return options
    known = [name for name in ROLES[role] if name in prompts]
    # sentence-transformers saves an empty "document" beside a "passage" that its author wrote.
    chosen = next((name for name in known if prompts[name]), known[0] if known else None)
    return {**options, "prompt_name": chosen}


def prompt_text(model: Any, prompt: str, argument: str = "prompt") -> str:
    """The text of a prompt that is given by its name or as text.

    Args:
        model: The model, whose ``prompts`` have names.
        prompt: A name of one of them, or a text.
        argument: Name of the caller's argument, for errors.

    Raises:
        TypeError: If it is not a str.
        ValueError: If it is one word and not a known name: as a prompt, it would merge with the first word of the text.

    Example:
        >>> from sbert import SentenceEncoder
        >>> from sbert.inputs.prompts import prompt_text
        >>> encoder = SentenceEncoder(prompts={"query": "query: "})
        >>> prompt_text(encoder, "query"), prompt_text(encoder, "Find: ")
        ('query: ', 'Find: ')
    """
    if not isinstance(prompt, str):
        raise TypeError(f"{argument} is of type {type(prompt).__name__}; pass a prompt's name or its text, as a str")
    known = dict(getattr(model, "prompts", None) or {})
    if not prompt or prompt in known:
        return str(known.get(prompt, ""))
    if prompt.isidentifier():
        nearest = nearest_argument(prompt, known)
        meant = f"did you mean {nearest!r}? " if nearest else ""
        raise ValueError(
            f"{argument}={prompt!r} is not a prompt of the model, which has {', '.join(map(repr, known)) or 'none'};"
            f" {meant}To pass a prompt as text, end it with a separator: '{prompt}: '"
        )
    return prompt


def by_column(prompts: Prompts | None, columns: Sequence[tuple[str, ...]]) -> list[str]:
    """The prompt of each column, as a name or a text; empty for none.

    Args:
        prompts: One prompt for all columns, or prompts by column.
        columns: For each column, the names it may have.

    Raises:
        ValueError: If prompts are given by column and one column is missing.

    Example:
        >>> from sbert.inputs.prompts import by_column
        >>> by_column({"anchor": "query", "positive": ""}, [("question", "anchor"), ("answer", "positive")])
        ['query', '']
    """
    if prompts is None or isinstance(prompts, str):
        return [prompts or ""] * len(columns)
    chosen = []
    for names in columns:
        name = next((name for name in names if name in prompts), None)
        if name is None:
            raise ValueError(
                f"prompts has no entry for the column {names[0]!r}, only for {', '.join(map(repr, prompts)) or 'none'};"
                f" add {names[0]!r}: '' if its texts take no prompt"
            )
        chosen.append(prompts[name])
    return chosen


def column_prompts(
    model: Any, prompts: Prompts | None, columns: Sequence[tuple[str, ...]], who: str = "the model"
) -> list[str]:
    """The text of the prompt of each column of a data set.

    Args:
        model: The model, whose ``prompts`` have names.
        prompts: As in ``TrainingConfig``.
        columns: For each column, the names it may have.
        who: What errors call the model.

    Raises:
        ValueError: If ``prompts`` is None and the model has a default prompt, or a column is missing from ``prompts``.

    Example:
        >>> from sbert import SentenceEncoder
        >>> from sbert.inputs.prompts import column_prompts
        >>> encoder = SentenceEncoder(prompts={"query": "query: "})
        >>> column_prompts(encoder, {"anchor": "query", "positive": ""}, [("anchor",), ("positive",)])
        ['query: ', '']
    """
    default = default_prompt(model)
    if prompts is None and default:
        named = ", ".join(f"{names[0]!r}: ..." for names in columns)
        raise ValueError(
            f"{who} has the default prompt {model.default_prompt_name!r} ({default!r:.60}), and it is not clear which"
            f" columns take it; pass prompts={{{named}}}, each with the name or the text of a prompt, or '' for none;"
            " or pass one str for all columns"
        )
    return [prompt_text(model, prompt, "prompts") for prompt in by_column(prompts, columns)]


def column_routes(model: Any, routes: Mapping[str, str] | None, columns: Sequence[tuple[str, ...]]) -> list[str] | None:
    """The route of each column of a data set; None for a model without routes.

    Args:
        model: The model, whose ``routes`` are the names of its routes.
        routes: As in ``TrainingConfig``.
        columns: For each column, the names it may have.

    Raises:
        ValueError: If a column has no route, or one that the model has not; or the model has none.

    Example:
        >>> from sbert import SentenceEncoder
        >>> from sbert.inputs.prompts import column_routes
        >>> model = SentenceEncoder()
        >>> column_routes(model, None, [("anchor",), ("positive",)]) is None
        True
    """
    known = getattr(model, "routes", ())
    if not known and routes:
        raise ValueError(f"routes={dict(routes)}, and the model has no Router; leave routes= out")
    chosen = [next((routes[name] for name in names if name in routes), "") for names in columns] if routes else []
    if known and not (chosen and set(chosen) <= set(known)):
        listed = ", ".join(f"{names[0]!r}: ..." for names in columns)
        raise ValueError(f"routes={routes}; each column takes one of {', '.join(known)}; pass routes={{{listed}}}")
    return chosen or None
