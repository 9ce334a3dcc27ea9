"""spaCy: a component that gives documents and spans vectors and similarities.

``doc.vector`` is that of the whole text, ``span.vector`` that of its text alone, and ``similarity`` their cosine:

>>> import spacy  # doctest: +SKIP
>>> import sbert.integrations.spacy  # registers the component  # doctest: +SKIP
>>> nlp = spacy.blank("en")  # doctest: +SKIP
>>> _ = nlp.add_pipe("sbert", config={"model": "all-MiniLM-L6-v2"})  # doctest: +SKIP
>>> first, second = nlp.pipe(["A cat sleeps.", "A kitten naps."])  # encoded together  # doctest: +SKIP
>>> first.similarity(second) > 0.5  # doctest: +SKIP
True

- For an encoder that is loaded: ``Language.component("mine", func=SbertComponent(model))``, then ``nlp.add_pipe``.
- Each reading of ``span.vector`` encodes its text: for many, call ``model.encode([span.text for span in doc.sents])``.
- Vectors are lost where spaCy writes documents: in ``DocBin``, ``to_bytes`` and ``nlp.pipe(n_process=2)``.
- Import this file before ``spacy.load`` of a saved pipeline. Tokens keep spaCy's own vectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from spacy.language import Language
from spacy.tokens import Doc
from spacy.util import minibatch

from sbert.integrations.loading import load_encoder


class SbertComponent:
    """The vectors of a ``SentenceEncoder`` for documents and spans.

    Args:
        model: An encoder, a folder or a name on the hub. Default: the bundled model.
        options: Of ``SentenceEncoder``, if the model is not loaded yet.
    """

    def __init__(self, model: Any = None, **options: Any) -> None:
        self.model = load_encoder(model, **options)

    def __call__(self, doc: Doc) -> Doc:
        """The document, with a vector."""
        return next(self.pipe([doc]))

    def pipe(self, stream: Iterable[Doc], batch_size: int = 1000) -> Iterator[Doc]:
        """The documents, encoded ``batch_size`` at a time."""
        for docs in minibatch(stream, batch_size):
            for doc, vector in zip(docs, self.model.encode([doc.text for doc in docs]), strict=True):
                doc.user_hooks.update(self._hooks(lambda _, vector=vector: vector))
                doc.user_span_hooks.update(self._hooks(lambda span: self.model.encode(span.text)))
                yield doc

    def _hooks(self, vector: Any) -> dict[str, Any]:
        def similarity(first: Any, second: Any) -> float:
            return float(self.model.similarity(first.vector, second.vector)[0, 0])

        return {"vector": vector, "has_vector": lambda _: True, "similarity": similarity}


@Language.factory("sbert", default_config={"model": None, "device": None})
def _component(nlp: Language, name: str, model: Any, device: Any) -> SbertComponent:
    return SbertComponent(model, device=device)
