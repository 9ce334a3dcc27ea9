"""Split long documents into passages, and encode one vector per passage."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from sbert.chunking.boundaries import Chunk, passages, require_positions, token_limit
from sbert.chunking.late import late_vectors
from sbert.encoder import SentenceEncoder
from sbert.inputs.arguments import known_arguments, whole
from sbert.inputs.texts import rows_of
from sbert.pipeline.model import choose_prompt
from sbert.pipeline.progress import Report
from sbert.pipeline.run import Encoding
from sbert.pipeline.settings import EncodeSettings
from sbert.pipeline.tokenize import groups


@known_arguments
def split(
    model: SentenceEncoder,
    documents: str | Iterable[str],
    max_tokens: int | None = None,
    overlap: int = 0,
    *,
    prompt_name: str | None = None,
    prompt: str | None = None,
) -> list[Chunk]:
    """Split documents into passages that fit the model, at sentence ends where possible.

    A passage holds as many whole sentences as fit. A sentence that is too long is split between words, and a word
    that is too long between characters. Passages begin and end with a visible character, and together they contain
    every visible character. A document without tokens, such as white space, has no passages.

    Args:
        model: The model whose tokenizer counts the tokens.
        documents: The documents.
        max_tokens: Maximum number of tokens per passage, without special tokens and prompt; by default as many as
            the model can read.
        overlap: Maximum number of tokens that a passage shares with the previous one, so that context at a split is
            not lost.
        prompt_name: Name of the model's prompt that will precede each passage; its tokens are reserved.
        prompt: Text of that prompt, instead of a name.

    Returns:
        The passages in the order of the documents.

    Raises:
        TypeError: If a document is not a str; the message names its row.
        ValueError: If ``max_tokens`` or ``overlap`` does not fit the model, or its tokenizer gives no token positions.

    Example:
        >>> from sbert import SentenceEncoder
        >>> from sbert.chunking import split
        >>> model = SentenceEncoder()
        >>> documents = ["A cat sleeps. A kitten naps. Taxes rise."]
        >>> [chunk.text(documents) for chunk in split(model, documents, max_tokens=11)]
        ['A cat sleeps. A kitten naps.', 'Taxes rise.']
    """
    texts = rows_of(documents, "documents")
    reader = require_positions(model.route("document")[0])
    limit = token_limit(reader, max_tokens, choose_prompt(model, prompt_name, prompt))
    if not 0 <= whole("overlap", overlap) < limit:
        raise ValueError(f"overlap={overlap} does not fit passages of {limit} tokens; pass 0 to {limit - 1}")
    return [
        Chunk(number, start, end)
        for first, group in groups(texts, len)
        for number, spans in enumerate(passages(reader, group, limit, overlap), start=first)
        for start, end in spans
    ]


@known_arguments
def encode_chunks(
    model: SentenceEncoder,
    documents: str | Iterable[str],
    max_tokens: int | None = None,
    overlap: int = 0,
    *,
    chunks: Iterable[tuple[int, int, int]] | None = None,
    late: bool = False,
    prompt_name: str | None = None,
    prompt: str | None = None,
    batch_tokens: int | None = None,
    normalize_embeddings: bool = False,
    truncate_dim: int | None = None,
    show_progress_bar: bool | None = None,
) -> tuple[list[Chunk], npt.NDArray[np.float32]]:
    """Split documents into passages, and encode one vector per passage.

    By default, each passage is encoded as a text of its own. With ``late=True`` (late chunking), the transformer reads
    the whole document, and the vector of a passage is pooled from its own token vectors x_a … x_b, which contain
    context from the rest of the document:

        v = rest(pool(x_a, …, x_b)),   x_1 … x_n = transformer(document)

    where ``rest`` stands for the modules after the pooling. A document that is longer than the model's maximum length
    is read in windows; each passage is pooled from one window that includes context on both sides.

    Args:
        model: The model. Late chunking needs a pooling over all tokens, such as mean.
        documents: The documents.
        max_tokens: As in ``split``.
        overlap: As in ``split``.
        chunks: (document, start, end) of given passages, instead of ``max_tokens`` and ``overlap``. An empty document
            has one passage, (document, 0, 0).
        late: Whether to use late chunking.
        prompt_name: Name of the model's prompt to put before each passage or, if late, before each window.
        prompt: Text of that prompt, instead of a name.
        batch_tokens: As in ``encode``.
        normalize_embeddings: As in ``encode``.
        truncate_dim: As in ``encode``.
        show_progress_bar: As in ``encode``.

    Returns:
        The passages and their vectors.

    Shape:
        Vectors: (passages, dim) float32.

    Raises:
        TypeError: If a document is not a str; the message names its row.
        ValueError: If arguments contradict each other, a passage lies outside its document, or the model does not
            support late chunking.

    References:
        Günther et al., 2024, Late Chunking, sections 3.1 and 3.2. https://arxiv.org/abs/2409.04701

    Example:
        >>> from sbert import SentenceEncoder
        >>> from sbert.chunking import encode_chunks
        >>> model = SentenceEncoder()
        >>> documents = ["Berlin lies on the Spree. The city has many bridges.", "Taxes rise."]
        >>> chunks, vectors = encode_chunks(model, documents, max_tokens=9, late=True)
        >>> [chunk.text(documents) for chunk in chunks]
        ['Berlin lies on the Spree.', 'The city has many bridges.', 'Taxes rise.']
        >>> vectors.shape
        (3, 256)
    """
    texts, prompts = list(rows_of(documents, "documents")), {"prompt_name": prompt_name, "prompt": prompt}
    if chunks is None:
        result = split(model, texts, max_tokens, overlap, **prompts)
    elif max_tokens is not None or overlap:
        raise ValueError("chunks and max_tokens or overlap were given; pass either chunks or the other two")
    else:
        result = [Chunk(*chunk) for chunk in chunks]
        for row, (document, start, end) in enumerate(result):
            size = len(texts[document]) if 0 <= document < len(texts) else -1
            if not 0 <= start < end <= size and not start == end == size == 0:  # The passage of an empty document.
                raise ValueError(f"chunks[{row}]={tuple(result[row])} is no part of the {len(texts)} documents")
    if not late:
        options: dict[str, Any] = {"batch_tokens": batch_tokens, "normalize_embeddings": normalize_embeddings}
        options |= {"truncate_dim": truncate_dim, "show_progress_bar": show_progress_bar, **prompts}
        return result, model.encode([chunk.text(texts) for chunk in result], task="document", **options)
    dim = model.truncate_dim if truncate_dim is None else truncate_dim
    prompt = choose_prompt(model, prompt_name, prompt)
    settings = EncodeSettings(prompt, batch_tokens, None, "ignore", dim, normalize_embeddings)
    job = Encoding(model.route("document"), settings)
    with Report(job, len(result), show_progress_bar, "chunks") as report:
        return result, late_vectors(job, require_positions(job.model[0]), texts, result, report)
