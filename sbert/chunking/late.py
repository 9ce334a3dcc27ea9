"""Late chunking: the transformer reads the whole document, and each passage is pooled from its own tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from sbert.batch import TokenEmbeddings, move
from sbert.chunking.boundaries import Chunk
from sbert.modules.pooling import Pooling
from sbert.modules.tokenizer import Tokenizing
from sbert.pipeline.batching import Indices, plan
from sbert.pipeline.compute import compute, open_window
from sbert.pipeline.progress import InvalidTextError, Report
from sbert.pipeline.run import Encoding, Results, Window, evaluating, outputs, run_batches, run_here
from sbert.pipeline.tokenize import Tokens, find_unreadable, groups, prompt_length

# Least context on each side of the passages of a window: 1 / _PART of the longest window, and at most _CONTEXT tokens.
_PART, _CONTEXT = 32, 256
# Pooling modes that use one token of the text, which most passages do not contain.
_ONE_TOKEN = ("cls", "lasttoken")

# The ids of tokens, and the characters from which to which each of them stands.
LocatedTokens = tuple[list[int], list[tuple[int, int]]]
# (index among the passages, start, end) of a passage; start and end count characters of a document, or tokens.
Passage = tuple[int, int, int]


class ContextWindow(NamedTuple):
    """One input of the transformer: a document, or as much of it as fits.

    Args:
        ids: Token ids, including special tokens and prompt.
        passages: The passages that are pooled from this window, in tokens of the window.
    """

    ids: list[int]
    passages: list[Passage]


def late_vectors(
    job: Encoding, reader: Tokenizing, documents: Sequence[str], chunks: Sequence[Chunk], report: Report
) -> npt.NDArray[np.float32]:
    """The vectors of the passages of documents.

    Args:
        job: The model and the settings.
        reader: First module of the model.
        documents: The documents.
        chunks: The passages.
        report: Counts the passages, and those that cannot be read.

    Shape:
        Output: (passages, dim).

    Raises:
        ValueError: If the model cannot pool passages, or a passage has no tokens or more than fit into a window.
    """
    execute = partial(_run, reader, documents) if chunks else run_here
    window = open_window(job, list(chunks), 0)
    return compute(job, window, execute(job, window, report), report, execute).numpy()  # type: ignore[no-any-return]


def _run(reader: Tokenizing, documents: Sequence[str], job: Encoding, window: Window, report: Report) -> Results:
    """For each batch of windows of documents, the indices of its passages, and their vectors, (passages, dim)."""
    before, after = _parts(job.model, job.device)
    prompt, limit = job.settings.prompt, reader.max_seq_length
    prompt_tokens = prompt_length(reader, prompt) if prompt else None
    if prompt_tokens is not None and limit is not None and prompt_tokens + reader.special_tokens[1] >= limit:
        raise ValueError(f"the prompt fills the {limit} tokens that the model can read at once; pass a shorter prompt")
    by_document: dict[int, list[Passage]] = {number: [] for number in sorted({chunk[0] for chunk in window.texts})}
    for index, (document, start, end) in enumerate(window.texts):
        by_document[document].append((index, start, end))
    passages = iter(by_document.values())
    for _, group in groups((documents[number] for number in by_document), len):
        located = reader.locate([prompt + document for document in group])
        read = [
            part
            for document, tokens in zip(group, located, strict=True)
            for part in _windows(reader, document, tokens, next(passages), prompt, window.rows)
        ]
        offsets = np.cumsum([0, *(len(part.ids) for part in read)])
        flat = np.fromiter((token for part in read for token in part.ids), np.int32, int(offsets[-1]))
        prompts = None if prompt_tokens is None else np.full(len(read), prompt_tokens)
        tokens = Tokens(flat, offsets, np.zeros(len(read), bool), prompts, unreadable=np.zeros(len(read), bool))
        tokens = find_unreadable(reader, group, tokens)
        report.unreadable += sum(len(read[row].passages) for row in np.flatnonzero(tokens.unreadable))
        with evaluating(job.model):
            rows = np.array([part.passages[0][0] for part in read])
            batches = plan(tokens.lengths, job.batch_tokens, padded=job.padded_tokens)
            for parts, output in run_batches(job, before, tokens, batches, window.rows[rows], report.what):
                vectors = after(_own_tokens(output, [read[part] for part in parts], prompt_tokens))
                indices = np.array([index for part in parts for index, _, _ in read[part].passages])
                report.advance(window.counts, indices)
                yield indices, job.finish(vectors)


def _parts(model: nn.Sequential, device: torch.device) -> tuple[nn.Sequential, nn.Sequential]:
    """The modules up to the last one with one vector per token, and the modules after it."""
    values = outputs(model, device)
    count = max((number for number, x in enumerate(values, start=1) if isinstance(x, TokenEmbeddings)), default=0)
    if not count:
        raise ValueError(f"late=True needs token vectors, and {type(model[0]).__name__} gives none; pass late=False")
    modules = list(model)
    modes = [mode for module in modules[count:] if isinstance(module, Pooling) for mode in module.modes]
    if one := next((mode for mode in modes if mode in _ONE_TOKEN), None):
        raise ValueError(f"late=True needs a pooling such as mean, and the model's pooling is {one!r}; pass late=False")
    return nn.Sequential(*modules[:count]), nn.Sequential(*modules[count:])


def _windows(
    reader: Tokenizing, document: str, tokens: LocatedTokens, passages: list[Passage], prompt: str, rows: Indices
) -> Iterator[ContextWindow]:
    """The windows of a document: each passage is in one window, with context around it.

    The first passage includes the leading special tokens and the prompt, and the last one the trailing special tokens.
    So a passage that is the whole document has the vector of the document.
    """
    ids, positions = tokens
    leading, trailing = reader.special_tokens
    last = len(ids) - trailing
    body = np.array(positions[leading:last], np.int64).reshape(-1, 2) - len(prompt)  # (tokens, 2)
    starts, ends = np.maximum.accumulate(body).T
    # Every window begins with the prompt. A token that spans the end of the prompt belongs to the prompt.
    lead = leading + (int(np.searchsorted(starts, len(prompt.rstrip()) - len(prompt))) if prompt else 0)
    starts, ends, count = starts[lead - leading :], ends[lead - leading :], last - lead
    room = count if reader.max_seq_length is None else max(0, reader.max_seq_length - lead - trailing)
    # White space at the ends of the document belongs to the first and the last passage.
    visible = len(document) - len(document.lstrip()), len(document.rstrip())
    pending: list[Passage] = []  # In tokens of the text.
    for index, start, end in passages:
        first = 0 if start <= visible[0] else int(np.searchsorted(ends, start, side="right"))
        behind = count if end >= visible[1] else int(np.searchsorted(starts, end))
        if behind - first > room:  # White space counts only as far as it fits: ``split`` leaves it out.
            first, behind = int(np.searchsorted(ends, start, side="right")), int(np.searchsorted(starts, end))
        if not min(count, 1) <= behind - first <= room:  # A document without tokens has one passage.
            problem = f" has {max(0, behind - first)} tokens, and the model can read {room} at once"
            raise InvalidTextError("chunks", int(rows[index]), problem)
        pending.append((index, first, behind))
    pending.sort(key=lambda passage: passage[1:])
    while pending:
        start, end, fitting = _window(pending, count, room)
        in_window = [
            (index, lead + a - start if a else 0, lead + b - start + (trailing if b == count else 0))
            for index, a, b in pending[:fitting]
        ]
        yield ContextWindow(ids[:lead] + ids[lead + start : lead + end] + ids[last:], in_window)
        del pending[:fitting]


def _window(passages: list[Passage], count: int, room: int) -> tuple[int, int, int]:
    """The first window: its start and end in tokens of the document, and how many of the passages it contains."""
    _, first, behind = passages[0]
    context = min(room // _PART, _CONTEXT)
    start = max(0, min(first - min(context, (room - (behind - first)) // 2), count - room))
    end = min(count, start + room)
    fitting = 1
    while fitting < len(passages) and (end == count or passages[fitting][2] <= end - context):
        fitting += 1
    return start, min(end, passages[fitting - 1][2] + context), fitting


def _own_tokens(tokens: TokenEmbeddings, read: Sequence[ContextWindow], prompt_tokens: int | None) -> TokenEmbeddings:
    """The token vectors of the passages, one row per passage; tokens of overlapping passages are repeated."""
    ends = np.cumsum([len(window.ids) for window in read])
    spans = np.array(
        [
            (end - len(window.ids) + first, behind - first, first)
            for end, window in zip(ends, read, strict=True)
            for _, first, behind in window.passages
        ]
    )  # (passages, 3)
    starts, lengths, firsts = spans.T
    offsets = np.concatenate([[0], np.cumsum(lengths)])  # (passages + 1,)
    positions = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
    device = tokens.values.device
    prompt = None
    if prompt_tokens is not None:  # Only the first passage of a window may contain it.
        prompt = move(torch.from_numpy(np.where(firsts == 0, np.minimum(lengths, prompt_tokens), 0)), device)
    values = tokens.values[move(torch.from_numpy(positions), device)]  # (tokens of the passages, dim)
    return TokenEmbeddings(values, move(torch.from_numpy(offsets), device), int(lengths.max()), prompt)
