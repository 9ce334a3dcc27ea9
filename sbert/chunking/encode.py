"""Long documents as passages: where to cut them, and a vector a passage."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch

from sbert.chunking.boundaries import Chunk, chunks_of, groups, locating
from sbert.chunking.late import Passage, late_vectors
from sbert.encoder import SentenceEncoder
from sbert.inputs.arguments import check_positive
from sbert.inputs.texts import rows_of
from sbert.modules.tokenizer import LocatesTokens
from sbert.pipeline.devices import default_batch_tokens, inference_dtype
from sbert.pipeline.encode import Encoding
from sbert.pipeline.outputs import RowsOfTensor
from sbert.pipeline.progress import Report, check_finite

__all__ = ["Chunk", "encode_chunks", "split"]


def split(
    model: SentenceEncoder,
    documents: str | Iterable[str],
    max_tokens: int | None = None,
    overlap: int = 0,
    *,
    prompt_name: str | None = None,
    prompt: str | None = None,
) -> list[Chunk]:
    """Cut documents into passages that the model can read, at the ends of sentences where possible.

    A passage holds as many whole sentences as fit; a sentence that is longer than a passage is cut between words,
    and a word that is longer between characters. Each begins and ends with a visible character, and together they
    hold all visible ones. A document without tokens, such as white space, has no passages.

    Args:
        model: Its tokenizer counts the tokens.
        documents: The documents.
        max_tokens: Tokens in a passage at most, without special tokens and prompt; as many as the model reads at
            once where it is not given.
        overlap: Tokens at most that a passage shares with the one before it, so that what is said across a cut
            stands together somewhere.
        prompt_name: Which of the model's prompts will stand before each passage.
        prompt: The text that will.

    Raises:
        TypeError: If a document is no str, naming its row.
        ValueError: If the numbers do not fit the model or each other, or its tokenizer does not say where tokens
            stand.

    Example:
        >>> documents = ["A cat sleeps. A kitten naps. Taxes rise."]
        >>> [chunk.text(documents) for chunk in split(model, documents, max_tokens=9)]
        ['A cat sleeps. A kitten naps.', 'Taxes rise.']
    """
    texts = rows_of(documents, "documents")
    return chunks_of(model[0], texts, max_tokens, overlap, model._choose_prompt(prompt_name, prompt))


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
) -> tuple[list[Chunk], np.ndarray]:
    """The passages of documents, and the vector of each.

    Plain, a passage is encoded as a text of its own. Late, the transformer reads the document, and a passage's
    vector is the pooling of the vectors of its own tokens x_a … x_b, which know what stands around them:

        v = rest(pool(x_a, …, x_b)),   x_1 … x_n = transformer(document)

    A document that is longer than the model reads at once is read in windows. Each passage is pooled from one
    window, which shows what stands on either side of it, too.

    Args:
        model: The model; for late chunking, one whose pooling takes all tokens, such as mean.
        documents: The documents.
        max_tokens: As in ``split``.
        overlap: As in ``split``.
        chunks: Passages of one's own, in place of these two.
        late: Whether passages are pooled from what the transformer makes of the whole document.
        prompt_name: Which of the model's prompts to put before each passage or, if late, each window.
        prompt: The text to put there.
        batch_tokens: As in ``encode``.
        normalize_embeddings: As in ``encode``.
        truncate_dim: As in ``encode``.
        show_progress_bar: As in ``encode``.

    Shape:
        Vectors: (passages, dim) float32.

    Raises:
        TypeError: If a document is no str, naming its row.
        ValueError: If an argument does not fit, a passage does not stand in its document, or the model has no
            vectors of passages.

    References:
        Günther et al., 2024, Late Chunking, sections 3.1 and 3.2. https://arxiv.org/abs/2409.04701

    Example:
        >>> documents = ["Berlin lies on the Spree. The city has many bridges.", "Taxes rise."]
        >>> chunks, vectors = encode_chunks(model, documents, max_tokens=9, late=True)
        >>> [chunk.text(documents) for chunk in chunks]
        ['Berlin lies on the Spree.', 'The city has many bridges.', 'Taxes rise.']
        >>> vectors.shape
        (3, 384)
    """
    texts = list(rows_of(documents, "documents"))
    if chunks is None:
        found = split(model, texts, max_tokens, overlap, prompt_name=prompt_name, prompt=prompt)
    elif max_tokens is not None or overlap:
        raise ValueError("chunks are passages already, and max_tokens and overlap make some; pass either")
    else:
        found = _checked(chunks, texts)
    if not late:
        vectors: np.ndarray = model.encode(
            [chunk.text(texts) for chunk in found],
            prompt_name=prompt_name,
            prompt=prompt,
            batch_tokens=batch_tokens,
            normalize_embeddings=normalize_embeddings,
            truncate_dim=truncate_dim,
            show_progress_bar=show_progress_bar,
        )
        return found, vectors
    job = Encoding(
        model,
        model._choose_prompt(prompt_name, prompt),
        check_positive("batch_tokens", batch_tokens) or default_batch_tokens(model.device),
        None,
        inference_dtype(model.dtype, model.automatic_dtype, model.device)[0],
        model.truncate_dim if truncate_dim is None else truncate_dim,
        normalize_embeddings,
        "float32",
        model.device,
        torch.device("cpu"),
        compiling=model._compiling,
    )
    with Report(len(found), show_progress_bar, "ignore", model.max_seq_length, "passages", model._told) as report:
        return found, _late(job, locating(model[0]), texts, found, report)


def _checked(chunks: Iterable[tuple[int, int, int]], documents: list[str]) -> list[Chunk]:
    found = [Chunk(*chunk) for chunk in chunks]
    for row, (document, start, end) in enumerate(found):
        if not 0 <= document < len(documents):
            raise ValueError(f"chunks[{row}] stands in document {document}, and there are {len(documents)}")
        if not 0 <= start < end <= len(documents[document]):
            raise ValueError(
                f"chunks[{row}] runs from {start} to {end} in a document of {len(documents[document])} characters;"
                " pass passages of at least one character that stand in their documents"
            )
    return found


# -------------------------------------------------------------------------------------------------- late chunking


def _late(
    job: Encoding, reader: LocatesTokens, documents: list[str], chunks: list[Chunk], report: Report
) -> np.ndarray:
    """The passages' vectors, pooled from what the transformer makes of their documents. Shape: (passages, dim)."""
    own: list[list[Passage]] = [[] for _ in documents]
    for row, (document, start, end) in enumerate(chunks):
        own[document].append((row, start, end))
    used = [number for number, passages in enumerate(own) if passages]
    result = RowsOfTensor((len(chunks), job.vectors([], report).shape[1]), job.to)
    for first, group in groups(documents[number] for number in used):
        passages = [own[number] for number in used[first : first + len(group)]]
        for rows, vectors in late_vectors(job, reader, group, passages, report):
            result.put(np.array(rows), vectors)
            report.done(len(rows))
    complete = result.complete()
    check_finite(complete, 0, "the vector of chunks")
    array: np.ndarray = complete.numpy()
    return array
