"""Which prompt stands before which text, where the caller names it by its name or writes it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sbert.inputs.arguments import nearest_argument

# Names that authors give the prompts of these, in the order in which they are looked up.
ROLES = {"query": ("query",), "document": ("document", "passage", "corpus")}

# A prompt of a model by its name, or the text itself; one for all columns, or by column.
Prompts = str | Mapping[str, str]


def default_prompt(model: Any) -> str:
    """The text that ``encode`` puts before every text unless told otherwise; empty where there is none.

    Example:
        >>> default_prompt(model)
        ''
    """
    name = getattr(model, "default_prompt_name", None)
    return "" if name is None else str((getattr(model, "prompts", None) or {}).get(name, ""))


def prompt_text(model: Any, prompt: str, argument: str = "prompt") -> str:
    """The text of a prompt that is given by its name or written out.

    Args:
        model: Whose prompts have names.
        prompt: A name among them, or a text.
        argument: What the caller calls it, for errors.

    Raises:
        TypeError: If it is no str.
        ValueError: If it is a bare word that is no name: as a text, it would become part of the first word.

    Example:
        >>> encoder = SentenceEncoder(minilm, prompts={"query": "query: "})
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
            f"{argument}={prompt!r} is no prompt of the model, which has {', '.join(map(repr, known)) or 'none'};"
            f" {meant}A text of your own ends with what parts it from the sentence, as '{prompt}: ' does"
        )
    return prompt


def by_column(prompts: Prompts | None, columns: Sequence[tuple[str, ...]]) -> list[str]:
    """What is given for each column, a name or a text; empty for none.

    Raises:
        ValueError: If prompts are given by column, and one has none.

    Example:
        >>> by_column({"anchor": "query", "positive": ""}, [("question", "anchor"), ("answer", "positive")])
        ['query', '']
    """
    if prompts is None or isinstance(prompts, str):
        return [prompts or ""] * len(columns)
    found = []
    for names in columns:
        name = next((name for name in names if name in prompts), None)
        if name is None:
            raise ValueError(
                f"prompts says nothing of the column {names[0]!r}, only of {', '.join(map(repr, prompts)) or 'none'};"
                f" add {names[0]!r}: '' if no prompt stands before its texts"
            )
        found.append(prompts[name])
    return found


def column_prompts(
    model: Any, prompts: Prompts | None, columns: Sequence[tuple[str, ...]], who: str = "the model"
) -> list[str]:
    """The text that stands before the texts of each column of a data set.

    Args:
        model: Whose prompts have names.
        prompts: As in ``TrainingConfig``.
        columns: Of each column, the names that it may be called by.
        who: What errors call the model.

    Raises:
        ValueError: If nothing is said and the model has a default prompt, or a column has none where others have.

    Example:
        >>> encoder = SentenceEncoder(minilm, prompts={"query": "query: "})
        >>> column_prompts(encoder, {"anchor": "query", "positive": ""}, [("anchor",), ("positive",)])
        ['query: ', '']
    """
    default = default_prompt(model)
    if prompts is None and default:
        named = ", ".join(f"{names[0]!r}: ..." for names in columns)
        raise ValueError(
            f"{who} has the default prompt {model.default_prompt_name!r} ({default!r}), and nothing says which columns"
            f" it belongs to; pass prompts={{{named}}}, each with a prompt's name or text and '' for none, or one such"
            " str for all columns"
        )
    return [prompt_text(model, given, "prompts") for given in by_column(prompts, columns)]
