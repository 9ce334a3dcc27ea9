"""The command line ``sbert``: one file per command.

```bash
sbert encode texts.txt -o vectors.npy
sbert similarity all-MiniLM-L6-v2 "The cat sleeps." "A kitten is napping."
sbert search texts.txt "Who sleeps?" --top-k 5
sbert pairs texts.txt --threshold 0.9 --json
sbert cluster texts.txt --threshold 0.7 --min-size 2
sbert map texts.txt -o map.html
sbert info copy
sbert doctor copy
sbert benchmark copy --data texts.txt
sbert train --model copy --data nli.tsv --columns premise,hypothesis --label label --loss softmax --output nli
sbert evaluate copy --suite sts,transfer --data data --output results.csv
sbert export onnx copy copy-onnx
```

``sbert COMMAND --help`` explains every option.

## Input

Files end in ``.txt`` (one text per line), ``.jsonl``, ``.json``, ``.csv``, ``.tsv`` or ``.parquet``, and in ``.gz`` if
they are compressed. A file with another ending is read as text if it is UTF-8, unless its ending is that of another
format, such as ``.xlsx``. ``-`` is standard input. ``sbert encode`` writes vectors while it reads texts, so a file may
be larger than memory.

## Output

Tables fit the terminal; ``sbert cluster`` adds the words that distinguish each cluster from the others. In pipes and
files texts are complete, and ``--json`` prints one line per result, for programs. A line of the input that does not fit
ends the command with exit code 2 and the number of the line; Ctrl-C ends it with 130. Neither leaves an incomplete
file.

## What the commands remember

``sbert search`` stores the vectors of ``texts.txt`` in ``texts.txt.sbert-vectors``. It encodes again only if texts,
model, options, versions or the processor have changed, or if the vectors are damaged; ``--no-cache`` stores nothing.

## Export

``sbert export FORMAT MODEL DIR`` writes a folder that other programs run: ``onnx``, ``openvino``, ``torch-export`` or
``gguf``. Its ``README.md`` says how; ``sbert.export`` explains the formats.

## Evaluate

``sbert evaluate`` prints, in percent, the figures of the suites ``sts``, ``transfer``, ``nli`` and ``retrieval`` on
those of their data sets that are in a folder (``--help`` says where), and names the missing ones. Several processes
share the work: ``torchrun --nproc-per-node 2 -m sbert evaluate …``.
"""
