"""Pretrain a small BERT by masked language modelling on plain text: a backbone without the hub.

python -m examples.paper.pretrain [--data FOLDER] --output FOLDER [--steps N] [--layers N] [--width N] [--device cuda]

Reads the reviews, news, premises, hypotheses and captions of FOLDER, except the sentences of the evaluation data sets,
and writes OUTPUT/model, a Hugging Face folder. An interrupted run continues where it stopped. Without --data it learns
synthetic sentences in seconds.
"""

import argparse
import gzip
import json
import re
import time
from collections.abc import Iterable, Iterator
from itertools import chain, islice, product
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import BertWordPieceTokenizer
from tokenizers.models import WordPiece
from torch import nn
from tqdm import tqdm
from transformers import BertConfig, BertModel, BertTokenizerFast

from examples.shared import ACTIONS, PEOPLE, PLACES, sentence
from sbert import TokenBatch, Transformer

LONG = ["text_imdb/*.tsv.gz:text", "text_reuters21578/docs.tsv.gz:body"]
SHORT = [
    "nli/snli_train_subset.tsv.gz:premise,hypothesis",
    "nli/mnli_train_ptbtok.tsv.gz:premise,hypothesis",
    "nli/wanli_15k.tsv.gz:premise,hypothesis",
    "captions/*.tsv.gz:caption1,caption2,caption3,caption4,caption5",
]
HELD_OUT = [
    "stsb/dev.tsv:sentence1,sentence2",
    "stsb/test.tsv:sentence1,sentence2",
    "sts/*/*.tsv:sentence1,sentence2",
    "sick/*.tsv:sentence1,sentence2",
    "nli/snli_dev.tsv:premise,hypothesis",
    "nli/snli_test.tsv:premise,hypothesis",
]
TOKENS = 128  # Maximum tokens per row.
MASKED = 0.15
KEPT = ("model", "head", "optimizer", "step", "random")
FIXED = ("layers", "width", "words", "batch_tokens", "learning_rate", "seed")  # Must not change between runs.


def cells(data: Path, sources: list[str]) -> Iterator[str]:
    """Yield the texts in some columns of some tables."""
    for source in sources:
        pattern, _, columns = source.partition(":")
        for path in sorted(data.glob(pattern)):
            with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8", newline="\n") as file:
                header = next(file).rstrip("\n").split("\t")
                places = [header.index(name) for name in columns.split(",") if name in header]
                for line in file:
                    row = line.rstrip("\n").split("\t")
                    yield from (row[place] for place in places)


def key(text: str) -> str:
    """The letters and digits of a text: texts with equal keys count as equal."""
    return re.sub(r"\W+", "", text.lower())


def read(data: Path | None) -> Iterator[str]:
    """Yield each text once, in a fixed order, without those of the evaluation data sets."""
    if data is None:
        found = product(PEOPLE, ACTIONS, PLACES, range(2))
        yield from (sentence(who[i], does[i], where[i]) for who, does, where, i in found)
        return
    seen = {hash(key(text)) for text in cells(data, HELD_OUT)}
    for text in chain(cells(data, SHORT), cells(data, LONG)):
        mark = hash(key(text))
        if mark not in seen and text:
            seen.add(mark)
            yield text


def make_tokenizer(texts: Iterable[str], words: int, folder: Path) -> BertTokenizerFast:
    """A lower-case WordPiece vocabulary."""
    if not folder.exists():
        trained = BertWordPieceTokenizer(lowercase=True)
        trained.train_from_iterator(texts, vocab_size=words, min_frequency=2, show_progress=False)
        half = folder.with_suffix(".half")
        half.mkdir(exist_ok=True)
        trained.save_model(str(half))
        half.rename(folder)
    vocabulary = WordPiece.read_file(str(folder / "vocab.txt"))
    return BertTokenizerFast(vocab=vocabulary, do_lower_case=True, model_max_length=TOKENS)


def make_rows(texts: Iterable[str], tokenizer: BertTokenizerFast, file: Path) -> tuple[np.ndarray, np.ndarray]:
    """All token ids end to end, and the offsets of rows of at most TOKENS ids; cached in a file."""
    if not file.exists():
        first, last, rows = tokenizer.cls_token_id, tokenizer.sep_token_id, []
        several = iter(texts)
        while some := list(islice(several, 2000)):
            for ids in tokenizer(some, add_special_tokens=False, verbose=False)["input_ids"]:
                pieces = (ids[start : start + TOKENS - 2] for start in range(0, len(ids), TOKENS - 2))
                rows += [np.array([first, *piece, last], np.uint16) for piece in pieces if len(piece) > 4]
        if not rows:
            raise SystemExit("there are no texts; pass --data with a folder that contains text_imdb, nli or captions")
        half = file.with_suffix(".half.npz")
        np.savez(half, tokens=np.concatenate(rows), ends=np.cumsum([len(row) for row in rows]))
        half.rename(file)
    made = np.load(file)
    return made["tokens"], np.concatenate([[0], made["ends"]])


def batches(lengths: np.ndarray, budget: int, seed: int) -> Iterator[np.ndarray]:
    """Yield random batches of rows within a token budget, longest rows first, epoch after epoch."""
    epoch = 0
    while True:
        order = np.random.default_rng([seed, epoch]).permutation(len(lengths))
        part = np.cumsum(lengths[order]) // budget
        for rows in np.split(order, np.flatnonzero(np.diff(part)) + 1):
            yield rows[np.argsort(-lengths[rows], kind="stable")]
        epoch += 1


class Head(nn.Module):
    """The masked language modelling head; it shares the embedding table with the model."""

    def __init__(self, table: nn.Embedding) -> None:
        super().__init__()
        words, width = table.weight.shape
        self.dense, self.norm = nn.Linear(width, width), nn.LayerNorm(width)
        self.bias = nn.Parameter(torch.zeros(words))

    def forward(self, hidden: torch.Tensor, table: nn.Embedding) -> torch.Tensor:
        return F.linear(self.norm(F.gelu(self.dense(hidden))), table.weight, self.bias)


def hide(ids: torch.Tensor, special: int, mask: int, words: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Choose tokens to predict: 80 % become [MASK], 10 % a random token, 10 % stay. Devlin et al., 2019, 3.1."""
    chosen = (torch.rand(ids.shape) < MASKED) & (ids >= special)
    fate = torch.rand(ids.shape)
    hidden = ids.masked_fill(chosen & (fate < 0.8), mask)
    other = torch.randint(special, words, ids.shape)
    return torch.where(chosen & (fate >= 0.9), other, hidden), chosen


def drop_behind(step: int, history: Path) -> None:
    """Remove the history lines of steps that will be repeated."""
    if history.exists():
        lines = history.read_text(encoding="utf-8").splitlines(keepends=True)
        # A process that was killed may have left an incomplete line.
        kept = [line for line in lines if line.endswith("\n") and json.loads(line)["step"] <= step]
        history.write_text("".join(kept), encoding="utf-8")


def arguments() -> argparse.Namespace:
    """The command line; options in FIXED must be the same in all runs into one folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, metavar="FOLDER")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--steps", type=int, help="6000, or 60 without data")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--words", type=int, default=16000, help="size of the vocabulary, at most 65536")
    parser.add_argument("--batch-tokens", type=int, help="8192, or 1024 without data")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="bfloat16")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--save-every", type=int, default=200, metavar="STEPS")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.steps = options.steps or (6000 if options.data else 60)
    options.batch_tokens = options.batch_tokens or (8192 if options.data else 1024)
    if options.words > 1 << 16:
        parser.error("--words: token ids are stored in 16 bits; pass 65536 at most")
    options.output.mkdir(parents=True, exist_ok=True)
    file, fixed = options.output / "settings.json", {name: getattr(options, name) for name in FIXED}
    if not file.exists():
        file.write_text(json.dumps(fixed), encoding="utf-8")
    if (known := json.loads(file.read_text(encoding="utf-8"))) != fixed:
        parser.error(f"{options.output} was created with {known}; pass the same options, or another folder")
    return options


def make_model(options: argparse.Namespace, words: int) -> tuple[BertModel, Head, torch.optim.Optimizer]:
    """A BERT with random weights, its head, and the optimizer."""
    config = BertConfig(
        vocab_size=words,
        hidden_size=options.width,
        num_hidden_layers=options.layers,
        num_attention_heads=max(1, options.width // 64),
        intermediate_size=4 * options.width,
        max_position_embeddings=512,
        hidden_dropout_prob=0.0,  # Most texts are seen once.
        attention_probs_dropout_prob=0.0,
    )
    bert = BertModel(config, add_pooling_layer=False)
    head = Head(bert.get_input_embeddings())
    parameters = [*bert.to(options.device).parameters(), *head.to(options.device).parameters()]
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": 0.01},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return bert, head, torch.optim.AdamW(groups, lr=options.learning_rate, betas=(0.9, 0.98))


def main() -> None:
    """Read, pretrain, and write the model."""
    options = arguments()
    steps, history = options.steps, options.output / "history.jsonl"
    torch.manual_seed(options.seed)

    tokenizer = make_tokenizer(read(options.data), options.words, options.output / "vocabulary")
    tokens, offsets = make_rows(read(options.data), tokenizer, options.output / "rows.npz")
    special = max(tokenizer.all_special_ids) + 1
    bert, head, optimizer = make_model(options, len(tokenizer))
    table = bert.get_input_embeddings()
    encoder = Transformer(bert, tokenizer).to(options.device).train()

    checkpoint, done = options.output / "checkpoint.pt", 0
    if checkpoint.exists():
        kept = torch.load(checkpoint, map_location=options.device, weights_only=True)
        bert.load_state_dict(kept["model"])
        head.load_state_dict(kept["head"])
        optimizer.load_state_dict(kept["optimizer"])
        torch.set_rng_state(kept["random"].cpu())
        done = kept["step"]
    drop_behind(done, history)
    print(f"{len(tokens):,} tokens in {len(offsets) - 1:,} rows; steps {done} to {steps}", flush=True)

    dtype = getattr(torch, options.dtype)
    stream = islice(batches(np.diff(offsets), options.batch_tokens, options.seed), done, steps)
    progress = tqdm(stream, total=steps, initial=done, disable=None)
    losses, start, seen = [], time.perf_counter(), 0
    for step, rows in enumerate(progress, start=done + 1):
        rate = options.learning_rate * min(step / (0.05 * steps), (steps - step) / (0.95 * steps))
        for group in optimizer.param_groups:
            group["lr"] = rate
        batch = TokenBatch.from_rows([tokens[offsets[row] : offsets[row + 1]].tolist() for row in rows])
        ids, chosen = hide(batch.ids, special, tokenizer.mask_token_id, len(tokenizer))
        masked = TokenBatch(ids, batch.offsets, batch.longest).to(options.device)
        places = chosen.nonzero()[:, 0].to(options.device)
        with torch.autocast(torch.device(options.device).type, dtype, enabled=dtype != torch.float32):
            scores = head(encoder(masked).values[places], table)
        loss = F.cross_entropy(scores.float(), batch.ids.to(options.device)[places])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_([*bert.parameters(), *head.parameters()], 1.0)
        optimizer.step()
        losses.append(loss.item())
        seen += len(ids)
        if step % 50 == 0 or step == steps:
            entry = {"step": step, "loss": round(float(np.mean(losses[-50:])), 4), "learning_rate": rate}
            entry["tokens_per_second"] = round(seen / (time.perf_counter() - start))
            progress.set_postfix(loss=entry["loss"])
            with history.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
        if step % options.save_every == 0 or step == steps:
            state = (bert.state_dict(), head.state_dict(), optimizer.state_dict(), step, torch.get_rng_state())
            half = checkpoint.with_suffix(".half")
            torch.save(dict(zip(KEPT, state, strict=True)), half)
            half.rename(checkpoint)
    bert.save_pretrained(options.output / "model")
    tokenizer.save_pretrained(options.output / "model")
    if losses:
        print(f"loss {losses[0]:.3f} before, {np.mean(losses[-20:]):.3f} after")
    print(f"the model is in {options.output / 'model'}")


if __name__ == "__main__":
    main()
