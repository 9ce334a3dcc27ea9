r"""Vectors on disk: ``encode(out=)`` for inputs larger than memory, interrupted calls, shards, and their joining.

## A file that is larger than memory

``sbert.data.Texts`` reads text, JSONL, CSV, TSV and Parquet, compressed or not, from files, folders and patterns, and
data sets of ``datasets``, one text after another. ``out=`` writes each window of vectors to the disk before the next:

>>> import os, tempfile
>>> from sbert.data import Texts
>>> folder = tempfile.mkdtemp()
>>> with open(f"{folder}/corpus.csv", "w", encoding="utf-8") as file:
...     _ = file.write("id,text\n7,A cat sleeps.\n8,Taxes rise.\n")
>>> texts = Texts(f"{folder}/*.csv", column="text")
>>> vectors = model.encode(texts, out=f"{folder}/vectors.npy")  # a memory map
>>> vectors.shape, sorted(os.listdir(folder))
((2, 384), ['corpus.csv', 'vectors.npy', 'vectors.npy.manifest'])

- A name that ends in ``.parquet`` makes a Parquet file, with the columns of ``Texts(..., keep=["id"])``.
- Until the end, the data is in ``vectors.npy.partial``, with a manifest beside it. After a kill, a full disk or Ctrl-C,
  **the same call goes on** where it was, and the file is the same to the last byte (with another number of threads or
  devices, but for rounding). At most one window is done twice: 2,048 texts with all-MiniLM-L6-v2 on a CPU, fewer with
  larger models.
- The manifest stays, so the same call again keeps a file that is finished. With another model, other settings or
  another input, or over a file without a manifest, it is an error that names the difference; ``overwrite=True``
  starts from scratch and replaces what is there. What you delete is made again.
- A Parquet file needs the space twice, because its parts are joined at the end; so does merging shards.
- ``precision="float16"``, ``"int8"`` or ``"ubinary"`` makes the file 2, 4 or 32 times smaller (``sbert.search``).
- On the command line: ``sbert encode all-MiniLM-L6-v2 corpus/ --column text --keep id -o vectors.parquet``.

## Several machines: shards

Texts are dealt to shards in stripes of 1,024 rows, so that a job needs only its index, counted from 0. Each shard is a
file with a manifest; finished ones are skipped, and killed ones go on: run the command again until nothing is missing.

```sh
seq 0 15 | OMP_NUM_THREADS=1 xargs -P 4 -I{} sbert encode corpus/ --column text -o vectors.npy --shard {}/16
sbatch --array=0-15 --wrap 'sbert encode corpus/ --column text -o vectors.npy --shard $SLURM_ARRAY_TASK_ID/16'
# Kubernetes, completionMode: Indexed
sh -c 'sbert encode corpus/ --column text -o vectors.npy --shard $JOB_COMPLETION_INDEX/16'

sbert merge vectors.npy  # one file in the order of the texts, after all shards were checked; or what is missing
```

>>> from sbert.vector_files import merge
>>> for index in range(2):  # each in a process or machine of its own
...     _ = model.encode(texts, out=f"{folder}/all.npy", shard=(index, 2))
>>> merge(f"{folder}/all.npy").name
'all.npy'

Each shard reads all of the input and encodes its part. From about a hundred shards on, give each job files of its own.

## Ray, Dask, Spark

A task of Ray that encodes a shard, as ``sbert.integrations.ray`` shows, encodes files on all machines of a cluster:
finished shards are skipped, and tasks that die go on. For pipelines of these engines there are ``Embed`` of
``sbert.integrations.ray`` for Ray Data, and ``embed_frame`` and ``embed_frames`` of ``sbert.integrations.frames`` for
Dask and Spark.

## To a billion texts

Hours are texts / rate / 3600, and a vector takes dimensions times bytes: of 10⁹ vectors of 768 dimensions in float32,
3.07 TB, and in an HNSW graph 0.27 TB more (tables: ``tests/benchmarks/README.md``). The road:

1. Write the corpus as Parquet files of 0.1 to 1 GB with an id, in row groups of 65,536 rows. Remove duplicates now.
2. Encode a thousandth. Compare float16, int8 and binary with float32 on your queries, and choose dimension and
   precision by that: they decide on every cost that follows (``sbert benchmark``, ``sbert.search``).
3. Encode all of it by Ray or in shards, to files that stand beside those of the input, with their ids.
4. Load the files into a database that divides its index over machines (Milvus, Qdrant, Vespa, LanceDB, pgvector), with
   bits in memory to find candidates and int8 on the disk to rank them. ``sbert.search.Index`` is for what fits in one
   machine: some tens of millions of rows.

What breaks first, in this order:

- **One reader.** A core tokenizes about 37,000 such texts per second, so a GPU that encodes 172,000 per second needs
  five cores, and writes 0.5 GB of float32 vectors of 768 dimensions per second.
- **Small files.** A million files of a thousand rows are a million requests to open one: join them first.
- **One index in memory.** At 768 dimensions, float32 in a graph takes 3.3 TB: use bits, or many machines.
- **Ids.** Row numbers of 32 bits end at 2.1 billion, and all change when a row is removed: carry ids of your own.
- **Interruptions.** In days on 64 machines some die: only work that can be repeated in small parts ends.
- **The version of the model.** Vectors of two models cannot be compared, so a new model means all of this again. Keep
  the texts, and the model's hash beside the vectors; manifests hold it.
"""

from __future__ import annotations

from sbert.inputs.arguments import publish
from sbert.vector_files.formats import VectorFiles
from sbert.vector_files.shards import merge

__all__ = ["VectorFiles", "merge"]

publish(__name__)
