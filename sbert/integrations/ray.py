"""Ray: texts to vectors on all machines of a Ray cluster.

``Embed`` adds a column of vectors in a pipeline of Ray Data. Each actor loads the model once; Ray restarts actors that
die, and repeats their batch:

>>> import ray  # doctest: +SKIP
>>> from sbert.integrations.ray import Embed
>>> rows = ray.data.read_parquet("s3://corpus/").repartition(target_num_rows_per_block=16_384)  # doctest: +SKIP
>>> rows = rows.map_batches(  # doctest: +SKIP
...     Embed,
...     fn_constructor_args=["all-MiniLM-L6-v2"],
...     batch_size=4096,
...     compute=ray.data.ActorPoolStrategy(size=8),
...     num_gpus=1,
... )
>>> rows.write_parquet("s3://vectors/")  # doctest: +SKIP

For files that all machines see, the shards of ``encode(out=)`` need no pipeline. A task that is repeated goes on where
the one that died was, and finished shards are skipped:

>>> from sbert import SentenceEncoder
>>> from sbert.data import Texts
>>> def encode_shard(index):
...     model = SentenceEncoder("all-MiniLM-L6-v2")
...     model.encode(Texts("corpus/", "text", keep=["id"]), out="/data/vectors.parquet", shard=(index, 16))
>>> task = ray.remote(num_gpus=1, max_retries=3)(encode_shard)  # doctest: +SKIP
>>> _ = ray.get([task.remote(index) for index in range(16)])  # doctest: +SKIP

- Keep ``repartition``. Ray reads 128 MB into one block, which may be a million texts, and an actor takes a whole block:
  other actors wait, and all of it is repeated where one dies. ``override_num_blocks`` does not help in Ray 2.60.
- Keep ``batch_size`` there at some thousands: texts are sorted by length within a batch. Leave a CPU to reading and
  writing: if actors have them all, Ray waits forever.
- Ray Data does not keep the order of rows, so carry an id; shards keep it.
- Each machine must see the model under its name or folder. Ray sets ``OMP_NUM_THREADS`` to the CPUs of an actor.
"""

from __future__ import annotations

from typing import Any

from sbert.inputs.texts import rows_of
from sbert.integrations.loading import load_encoder


class Embed:
    """A class for ``Dataset.map_batches`` that adds a column of vectors. Each actor loads the model once.

    Args:
        model: A folder or a name on the hub. Default: the bundled model.
        column: The column of texts.
        vectors: The column of vectors.
        options: ``device`` and ``dtype`` of ``SentenceEncoder``; and those of ``SentenceEncoder.encode``.

    Raises:
        TypeError: If a text is not a str.

    Example:
        >>> import numpy as np
        >>> from sbert.integrations.ray import Embed
        >>> batch = {"id": np.array([7]), "text": np.array(["A cat sleeps."], object)}
        >>> Embed()(batch)["vector"].shape
        (1, 256)
    """

    def __init__(
        self, model: str | None = None, *, column: str = "text", vectors: str = "vector", **options: Any
    ) -> None:
        self.model = load_encoder(model, device=options.pop("device", None), dtype=options.pop("dtype", "auto"))
        self.column, self.vectors, self.options = column, vectors, options

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The batch with the vectors. Shape: (rows, dim)."""
        texts = list(rows_of(batch[self.column], self.column))
        return {**batch, self.vectors: self.model.encode(texts, show_progress_bar=False, **self.options)}
