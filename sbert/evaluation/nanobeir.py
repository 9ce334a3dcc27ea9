"""NanoBEIRSuite: retrieval, or the reranking of candidates, on the small data sets of NanoBEIR."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from sbert.data.retrieval_data import read_hub_retrieval
from sbert.evaluation.evaluator import Evaluator
from sbert.evaluation.metric_checks import check_name_list
from sbert.evaluation.model_vectors import ModelVectors
from sbert.evaluation.retrieval import RetrievalEvaluator


class NanoBEIRSuite(Evaluator):
    r"""nDCG, accuracy, precision, recall, MRR and MAP on the data sets of NanoBEIR, and their means.

    ``mean_ndcg@10`` is the mean over the data sets; ``NanoNQ_ndcg@10`` and so on are those of each. A model with
    vectors searches the whole corpus. A ``CrossEncoder`` reranks candidates: those that BM25 found, which the
    folder has to hold. A relevant document that is not among them counts as not found, and
    ``mean_base_ndcg@10`` is that of the candidates in their own order.

    Args:
        folder: A folder in the layout of the hub, see ``sbert.data.read_hub_retrieval``.
        sets: Names of data sets, such as ``"NanoNQ"``; by default all that are in the folder.
        rerank: Number of candidates that a reranker ranks.
        similarity: As in ``RetrievalEvaluator``.
        query_prompt: As in ``RetrievalEvaluator``; or a dict of prompts by the names of data sets.
        document_prompt: The same for documents.
        at: The values of k of the metrics, such as ``ndcg_at=(5, 10)``, as in ``RetrievalEvaluator``.

    Raises:
        FileNotFoundError: If the folder has no data set, or lacks one that ``sets`` names.
        ValueError: If the data is invalid, or there are no candidates for a reranker.

    References:
        https://huggingface.co/collections/zeta-alpha-ai/nanobeir
        Thakur et al., 2021 (BEIR). https://arxiv.org/abs/2104.08663

    Example:
        >>> import json, pathlib, tempfile
        >>> from sbert import SentenceEncoder
        >>> from sbert.evaluation import NanoBEIRSuite
        >>> model = SentenceEncoder()
        >>> rows = {"corpus": [{"_id": "a", "text": "A kitten naps."}, {"_id": "b", "text": "Taxes rise."}]}
        >>> rows |= {"queries": [{"_id": "q", "text": "A cat?"}], "qrels": [{"query-id": "q", "corpus-id": "a"}]}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for part, lines in rows.items():
        ...         (pathlib.Path(folder) / part).mkdir()
        ...         text = "\n".join(map(json.dumps, lines))
        ...         _ = (pathlib.Path(folder) / part / "NanoPets-00000-of-00001.jsonl").write_text(text)
        ...     NanoBEIRSuite(folder)(model)["mean_ndcg@10"]
        1.0
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        sets: Iterable[str] | None = None,
        *,
        rerank: int = 100,
        similarity: str | None = None,
        query_prompt: str | dict[str, str] | None = None,
        document_prompt: str | dict[str, str] | None = None,
        **at: Sequence[int],
    ) -> None:
        names = None if sets is None else check_name_list("sets", sets, ("NanoNQ", "NanoSciFact"))
        data = read_hub_retrieval(folder, names)
        prompts = {"query_prompt": query_prompt, "document_prompt": document_prompt}
        for prompt in prompts.values():
            if isinstance(prompt, dict) and not prompt.keys() <= data.keys():
                raise ValueError(f"prompts are for {', '.join(prompt)}, but the data sets are {', '.join(data)}")
        self._searches: dict[str, Evaluator] = {}
        self._rerankings: dict[str, Evaluator] = {}
        for name, (queries, corpus, relevant, candidates) in data.items():
            options: dict[str, Any] = dict(at)
            for key, prompt in prompts.items():
                options[key] = prompt.get(name) if isinstance(prompt, dict) else prompt
            options["similarity"] = similarity
            self._searches[name] = RetrievalEvaluator(queries, corpus, relevant, **options)
            if candidates:
                options |= {"candidates": candidates, "rerank": rerank}
                self._rerankings[name] = RetrievalEvaluator(queries, corpus, relevant, **options)

    def measure(self, vectors: ModelVectors) -> dict[str, float]:
        """The means over the data sets, and then the metrics of each."""
        evaluators = self._rerankings if vectors.is_cross_encoder else self._searches
        if lacking := [name for name in self._searches if name not in evaluators]:
            remedy = "pass a folder with those of BM25, such as sentence-transformers/NanoBEIR-en"
            raise ValueError(f"there are no candidates of {', '.join(lacking)} for a reranker; {remedy}")
        results = {name: evaluator.measure(vectors) for name, evaluator in evaluators.items()}
        metrics = next(iter(results.values()))
        means = {f"mean_{metric}": float(np.mean([row[metric] for row in results.values()])) for metric in metrics}
        return means | {f"{name}_{metric}": scores[metric] for name, scores in results.items() for metric in metrics}
