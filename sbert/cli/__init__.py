"""The command line ``sbert``: one file per command.

```bash
sbert encode texts.txt -o vectors.npy
sbert encode corpus/ --column text --keep id -o vectors.parquet
sbert encode corpus/ --column text --shard 3/16 -o corpus.npy
sbert merge corpus.npy
sbert similarity all-MiniLM-L6-v2 "The cat sleeps." "A kitten is napping."
sbert search texts.txt "Who sleeps?" --top-k 5
sbert pairs texts.txt --threshold 0.9 --json
sbert cluster texts.txt --threshold 0.7 --min-size 2
sbert map texts.txt -o map.html
sbert info copy
sbert doctor copy
sbert benchmark copy --data texts.txt
sbert train --model copy --data nli.tsv --columns premise,hypothesis --label label --loss softmax --output nli
sbert evaluate copy --suite sts,retrieval --data data --output results.csv
sbert export onnx copy copy-onnx
```

``sbert`` alone prints five commands to try, and ``sbert COMMAND --help`` explains every option.

## Input

Files end in ``.txt`` (one text per line), ``.jsonl``, ``.json``, ``.csv``, ``.tsv`` or ``.parquet``, and in ``.gz`` or
``.zst`` if they are compressed. A file with another ending is read as text if it is UTF-8, unless its ending is that of
another format, such as ``.xlsx``. ``-`` is standard input. A folder, or a pattern in quotes such as ``"corpus/*.csv"``,
stands for its files, sorted by name.

## Output

Tables fit the terminal; ``sbert cluster`` adds the words that distinguish each cluster from the others. In pipes and
files texts are complete, and ``--json`` prints one line per result, for programs. A line of the input that does not fit
ends the command with exit code 2 and the number of the line; Ctrl-C ends it with 130. Neither leaves an incomplete
file under the name of the output.

## Large inputs, machines that fail, several machines

``sbert encode`` writes vectors while it reads texts, so both may be larger than memory. What is done stays beside the
output: run a command again that was interrupted or killed, and it goes on; the file is the same to the last byte. A
command that is finished changes nothing when it is run again, and over a file of other texts or of another model it is
an error: ``--overwrite`` starts from scratch and replaces it.
``--devices cuda:0,cuda:1`` shares the work in one machine. ``--shard 3/16`` encodes one of 16 parts, numbered from 0,
and needs no other program than one that starts the jobs: ``xargs -P``, Slurm arrays, indexed jobs of Kubernetes.
A shard that is finished is skipped, so all jobs may be started again:

```text
seq 0 15 | OMP_NUM_THREADS=2 xargs -P 4 -I{} sbert encode corpus/ -o corpus.npy --shard {}/16
sbatch --array=0-15 --wrap 'sbert encode corpus/ -o corpus.npy --shard $SLURM_ARRAY_TASK_ID/16'
sh -c 'sbert encode corpus/ -o corpus.npy --shard $JOB_COMPLETION_INDEX/16'    # Kubernetes, an indexed job
```

``sbert merge corpus.npy`` joins the shards after it has checked that they belong together, or says which are missing.
For Ray, Dask and Spark there are functions in ``sbert.integrations``.

## What the commands remember

``sbert search`` stores the vectors of ``texts.txt`` in the user's cache. It encodes again only if texts,
model, options, versions or the processor have changed, or if the vectors are damaged; ``--no-cache`` stores nothing.

## Is this machine used well?

``sbert doctor MODEL`` says on which device, in which dtype and by which forward the model runs here, and why a faster
backend does not run. ``sbert doctor MODEL --gpu`` tries a GPU stage by stage, each in a process of its own: vectors
beside those of the CPU, attention, two models, threads, training, search and speed. What fails or dies has its reason
in its line, and what avoids it. ``--report FILE`` also writes the lines to a file, as they come, with all tracebacks;
``sbert.backends`` shows some. The exit code is 1 if a stage failed. ``--backend onnx`` and ``openvino``, with ``--dtype
int8`` or without, are understood by all commands that load a model.

## Export

``sbert export FORMAT MODEL DIR`` writes a folder that other programs run: ``onnx`` or ``torch-export``. Its
``README.md`` says how; ``sbert.saving.export`` explains the formats. ``--dtype int8``, for ``onnx``, is compared with
float32.

## Evaluate

``sbert evaluate`` prints, in percent, the metrics of the suites ``sts``, ``retrieval`` and ``nanobeir`` on those of
their data sets that are in a folder (``--help`` says where), and names the missing ones. Several processes
share the work: ``torchrun --nproc-per-node 2 -m sbert evaluate …``.

## Train

``sbert train`` trains on one data set with one loss and one evaluator; ``sbert.Trainer`` takes several. Its settings
come from flags, from ``--set training.schedule=cosine`` and from a TOML file for ``--config``; the sections ``model``,
``data``, ``training`` (the arguments of ``sbert.TrainingConfig``), ``evaluate`` and ``callbacks`` may hold what
``--help`` explains. Losses, evaluators and callbacks have the names of their classes:
``softmax``, ``cosent``, ``early-stopping``; with parameters they are tables, such as
``loss = {name = "matryoshka", dims = [256, 64], loss = "ranking"}``. ``sbert train --resume DIR`` goes on with a run
that was stopped, from any folder; on a CPU, the result is bit-for-bit that of a run without a stop.

## Which model, which search, how fast?

``sbert benchmark MODEL --data texts.txt --dtypes float32,bfloat16`` measures a model on your own texts, beside
sentence-transformers where it is installed, alternately: texts per second, seconds until the first vector, and one
text alone. The program ``examples/recommend.py`` measures what your models, BM25, both together and reranking find in
your own documents; its advice names a winner only if the difference is more than chance.
"""
