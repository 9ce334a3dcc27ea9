"""Rows of one query and several documents, for losses of a cross-encoder's scores of lists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
from torch import Tensor

from sbert.training.dataset import Rows


class ListRows(Rows):
    """Rows of a query and a list of documents, with a list of labels if the loss takes labels.

    A row is (query, documents, labels), or a dict with these keys; it may have as many documents as it likes. Labels
    are grades, 0 and 1, or the scores of a teacher. The arguments are those of ``Rows``.

    Raises:
        TypeError: If a document is not a str, or a label is not a number; the message names the row.
        ValueError: If a row has no documents, or not as many labels as documents; or the rows differ in their numbers
            of documents and the loss takes no ``mask``.

    Example:
        >>> from sbert.losses import ListNetLoss
        >>> data = [("Who naps?", ["A cat.", "Taxes."], [1, 0]), ("Who sings?", ["A bird."], [2])]
        >>> rows = ListRows(data, ListNetLoss(), pairs=True)
        >>> rows.texts(0), rows.inputs(0)
        (('Who naps?', 'A cat.', 'Taxes.'), (('Who naps?', 'A cat.'), ('Who naps?', 'Taxes.')))
    """

    def texts(self, row: int) -> tuple[str, ...]:
        """The query and the documents of a row."""
        query, documents = super().texts(row)
        return query, *documents

    def cells(self, row: int) -> tuple[str, ...]:
        """The query, the documents and the labels of a row as a table shows them."""
        query, *documents = self.texts(row)
        labels = () if self.labels is None else self.labels[row, : len(documents)].tolist()
        return query, " / ".join(documents), *([", ".join(f"{label:g}" for label in labels)] if labels else [])

    def inputs(self, row: int) -> tuple[Any, ...]:
        """A pair of the query and each document."""
        query, *documents = self.texts(row)
        return tuple((query, document) for document in documents)

    def _all_texts(self) -> Iterable[str]:
        return chain.from_iterable((*self.texts(row), "\n") for row in range(len(self)))

    def _check_texts(self, column: int, values: list[Any]) -> None:
        if column == 0:
            return super()._check_texts(column, values)
        for number, documents in enumerate(values):
            where = f"{self.name}, row {number}"
            if isinstance(documents, str) or not isinstance(documents, (Sequence, np.ndarray)):
                found = f"{documents!r:.40} of type {type(documents).__name__}"
                raise TypeError(f"{where}: documents is {found}; pass a list of texts")
            for place, text in enumerate(documents):
                if not isinstance(text, str):
                    found = f"{text!r:.40} of type {type(text).__name__}"
                    raise TypeError(f"{where}: document {place} is {found}; pass only str")
            if not len(documents):
                raise ValueError(f"{where} has no documents; pass at least one, or leave the row out")
            if len(documents) != len(values[0]) and "mask" not in self.signature.extras:
                raise ValueError(
                    f"{where} has {len(documents)} documents, row 0 {len(values[0])}; {self.signature.name} takes no"
                    " mask, so pass as many for each query; or give the loss a parameter mask=None"
                )
        return None

    def _read_labels(self, values: list[Any]) -> Tensor:
        """Labels of the documents, with each row's first label repeated at padding.

        Shape:
            Output: (rows, most documents).
        """
        documents = self._columns[1]
        given = [value.tolist() if isinstance(value, (Tensor, np.ndarray)) else value for value in values]
        for number, (labels, texts) in enumerate(zip(given, documents, strict=True)):
            count = len(labels) if isinstance(labels, (list, tuple)) else None
            if count != len(texts):
                found = f"{labels!r:.40}" if count is None else f"{count} labels"
                raise ValueError(
                    f"{self.name}, row {number} has {len(texts)} document{'s' * (len(texts) != 1)} and {found}; pass a"
                    " list of as many numbers"
                )
        width = max(map(len, documents))
        return super()._read_labels([[*labels, *labels[:1] * (width - len(labels))] for labels in given])
