"""CrossEncoder: a transformer that reads two texts as one input and returns one score, or one score per class."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import torch
from torch import Tensor, nn

from sbert import backends
from sbert.backends import accepts, check_limit, default_limit, vocab_size
from sbert.backends.huggingface import decide_tokenizers
from sbert.batch import TokenBatch
from sbert.evaluation.evaluator import Evaluate
from sbert.inputs.arguments import check_positive, known_arguments, with_aliases
from sbert.inputs.devices import adapt_half_precision, check_device, default_device
from sbert.inputs.texts import Pair, is_pair, pairs_of, texts_of
from sbert.losses.score_losses import default_score_loss
from sbert.losses.signature import Loss
from sbert.modules.tokenizer import PairTokenizer
from sbert.pipeline.compute import encode_texts
from sbert.pipeline.model import ScorerMethods, choose_prompt, loading_options, set_up
from sbert.pipeline.results import PredictOptions, Ranked, ScoreActivation, Scored, activate, as_predict, convert
from sbert.pipeline.run import Encoding, run_here
from sbert.pipeline.settings import EncodeSettings
from sbert.pipeline.tokenize import Tokens, tokenize_pairs
from sbert.saving.cross_encoder_folder import check_activation, read_cross_encoder, write_cross_encoder
from sbert.saving.format import check_replaceable
from sbert.storage import hub
from sbert.storage.atomic import replacing
from sbert.training import Trainer, TrainingConfig

if TYPE_CHECKING:
    from sbert.pipeline.pool import Pool


class CrossEncoder(ScorerMethods, nn.Module):
    """Scores pairs of texts: a transformer reads both as one input, and a head on it gives the scores.

        scores = f(W h([first; second]) + b)

    More accurate than comparing two vectors, and slower, because every pair passes through the transformer: use it to
    rerank the results of a ``SentenceEncoder``.

    Args:
        model: A folder or a name on the hub. A backbone without a head, such as bert-base-uncased, gets a new head
            with random weights, which has to be trained.
        classes: Number of scores per pair of a new head. Default: 1, with a warning that names the new weights.
        max_seq_length: Longest input in tokens, including both texts and the special tokens. Default: the minimum of
            what the tokenizer, the configuration and the table of positions allow.
        device: Device to run on. Default: the accelerator that torch finds, else the CPU.
        dtype: Dtype of the weights and of the computation: ``"float32"``, ``"bfloat16"`` or ``"float16"``. With
            ``"auto"``, float32: scores of lower precision tie. Scores are always float32.
        activation: f, applied to (pairs, classes) scores. Default: that of the folder, else a sigmoid for one class
            and the identity for several.
        prompts: Texts to prepend to the first text of a pair, by name. Default: those of the folder.
        default_prompt_name: Name of the prompt that ``predict`` uses if it is given none.
        revision: Branch, tag or commit on the hub.
        token: Access token for private models.
        cache_folder: Folder for downloads.
        local_files_only: Use only files that have been downloaded before.
        model_kwargs: What transformers loads a folder with: ``dtype``, or ``attn_implementation`` ("eager", "sdpa").
        tokenizer_kwargs: Arguments of the tokenizer, in place of those of the folder.
        config_kwargs: Values of the configuration, in place of those of the folder.
        backend: ``"plain"`` or ``"auto"``, as for ``SentenceEncoder``.

    Arguments and properties of sentence-transformers are taken as well: ``model_name_or_path=``, ``num_labels=``,
    ``max_length=``, ``activation_fn=``.

    Shape:
        Input: TokenBatch of (tokens,) ids. Output: (rows, classes), before the activation.

    Raises:
        FileNotFoundError: If neither a folder nor a model on the hub has this name.
        ValueError: If a file of the folder is damaged or not supported. The message names the file and the remedy.

    References:
        Devlin et al., 2019, section 3 (a pair as one input). https://arxiv.org/abs/1810.04805
        Reimers and Gurevych, 2019, section 4 (the rows of BERT). https://arxiv.org/abs/1908.10084

    Example:
        >>> from sbert import CrossEncoder
        >>> scorer = CrossEncoder("sbert-mini", classes=3)
        >>> scorer.predict([("A cat sleeps.", "A kitten naps."), ("A cat sleeps.", "Taxes rise.")]).shape
        (2, 3)
    """

    is_cross_encoder: ClassVar[bool] = True
    activation: ScoreActivation

    @with_aliases
    def __init__(
        self,
        model: str | os.PathLike[str],
        classes: int | None = None,
        *,
        max_seq_length: int | None = None,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype = "auto",
        activation: ScoreActivation | None = None,
        prompts: Mapping[str, str] | None = None,
        default_prompt_name: str | None = None,
        revision: str | None = None,
        token: str | bool | None = None,
        cache_folder: str | None = None,
        local_files_only: bool = False,
        model_kwargs: Mapping[str, Any] | None = None,
        tokenizer_kwargs: Mapping[str, Any] | None = None,
        config_kwargs: Mapping[str, Any] | None = None,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        if not isinstance(model, (str, os.PathLike)):
            raise TypeError(f"CrossEncoder() was given {type(model).__name__}; pass the name or folder of a model")
        weights_dtype, arguments = loading_options(dtype, model_kwargs, tokenizer_kwargs, config_kwargs)
        find = partial(hub.resolve, token=token, cache_folder=cache_folder, local_files_only=local_files_only)
        folder = find(model, organisation="cross-encoder", revision=revision)
        self.name_or_path: str = os.fspath(model)
        check_positive("classes", classes)
        self.auto_model: Any
        self.tokenizer: Any
        self.new_weights: list[str]  # Of a new head: those that the folder does not have.
        self.auto_model, self.tokenizer, self.new_weights, self.activation, saved = read_cross_encoder(
            folder, classes, weights_dtype or torch.float32, activation, arguments
        )
        set_up(self, prompts, default_prompt_name, saved)
        self.backend: str = backends.choose_backend(backend)
        self.plain_devices: set[torch.device] = set()  # Those where a faster way has failed.
        backends.adopt(self.auto_model.base_model, self.backend)
        self._copy: tuple[object, PairTokenizer] | None = None
        self.automatic_dtype: bool = False
        limit = default_limit(self.auto_model, self.tokenizer)
        self.max_seq_length = limit if max_seq_length is None else max_seq_length
        self.to(device=check_device(device or default_device())).eval()
        decide_tokenizers(self)
        adapt_half_precision(self, self.device)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in ("activation", "activation_fn"):
            super().__setattr__(name, value)
        elif callable(value):
            self.__dict__["activation"] = value  # As a module of this one, it would be trained and saved with it.
        else:
            raise TypeError(f"activation is {value!r}; pass a function or a module such as nn.Sigmoid()")

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        backends.adopt(self.auto_model.base_model, self.backend)  # The model may come from another process.

    # ---------------------------------------------------------------------------------------------- properties

    @property
    def classes(self) -> int:
        """Number of scores per pair."""
        return int(self.auto_model.config.num_labels)

    @property
    def max_seq_length(self) -> int | None:
        """Longest input in tokens, including both texts and the special tokens; None without a limit."""
        return self._limit

    @max_seq_length.setter
    def max_seq_length(self, length: int | None) -> None:
        self._limit = check_limit(self.auto_model, length, self.tokenizer.num_special_tokens_to_add(pair=True) + 2)

    # ------------------------------------------------------------------------------------------ tokens, forward

    def _reader(self) -> PairTokenizer:
        """A private copy of the tokenizer, copied again after the tokenizer or the limit was changed."""
        state = self.tokenizer, len(self.tokenizer), self.tokenizer.truncation_side, self._limit
        if self._copy is None or self._copy[0] != state:
            typed = "token_type_ids" in self.tokenizer.model_input_names
            typed = typed and accepts(self.auto_model, "token_type_ids")
            self._copy = state, PairTokenizer(self.tokenizer, typed, self._limit)
        return self._copy[1]

    def tokens(self, pairs: Sequence[Pair], prompt: str = "") -> Tokens:
        """Tokenize pairs, each as one input, with a prompt before the first text.

        A pair that is too long is truncated: tokens of its longer text are removed first.

        Example:
            >>> from sbert import CrossEncoder
            >>> scorer = CrossEncoder("sbert-mini", classes=3)
            >>> scorer.tokens([("A cat.", "A kitten.")]).lengths
            array([9])
        """
        types = getattr(self.auto_model.config, "type_vocab_size", None) or None
        return tokenize_pairs(self._reader(), pairs, vocab_size(self.auto_model), types, prompt)

    def forward(self, batch: TokenBatch) -> Tensor:
        if not isinstance(batch, TokenBatch):
            kind = type(batch).__name__
            raise TypeError(f"the model was called with a {kind}; pass pairs of texts to predict(), or a TokenBatch")
        if not batch.rows:
            return torch.zeros(0, self.classes, dtype=self.dtype, device=batch.ids.device)
        plain = self.backend == "plain" or batch.values.device in self.plain_devices
        return backends.scores(self.auto_model, batch, plain)

    # ------------------------------------------------------------------------------------------- predict, rank

    @as_predict
    @with_aliases
    def predict(
        self,
        pairs: Pair | Iterable[Pair],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int | None = None,
        batch_tokens: int | None = None,
        show_progress_bar: bool | None = None,
        activation: ScoreActivation | None = None,
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        on_truncate: str = "warn",
        pool: Pool | None = None,
        chunk_size: int | None = None,
    ) -> Scored:
        """Score pairs of texts, in the order of the pairs.

        The score of a pair does not depend on the other pairs. Each distinct pair is scored once, in batches of
        similar length. Threads may call this at the same time. Unknown tokens cause a warning as in
        ``SentenceEncoder.encode``.

        Args:
            pairs: A pair of str, or an iterable of pairs: list, array, generator.
            prompt_name: Name of the prompt before the first text of each pair. Default: ``default_prompt_name``.
            prompt: Text of this prompt, instead of a name; ``""`` for none.
            batch_size: Number of pairs per batch. Default: as many as ``batch_tokens`` allows.
            batch_tokens: Maximum number of tokens per batch, including padding.
            show_progress_bar: Whether to show a progress bar. Default: from 2,000 pairs on, on a terminal or in a
                notebook.
            activation: Applied to (pairs, classes) scores, instead of that of the model; ``nn.Identity()`` for raw
                scores. Its output is converted to float32, except for integers, such as those of ``argmax``.
            convert_to_numpy: Return an array. If this and ``convert_to_tensor`` are both false: a list of tensors.
            convert_to_tensor: Return a tensor on the device of the model.
            on_truncate: What to do if pairs exceed ``max_seq_length``: ``"warn"`` once with their number,
                ``"ignore"``, or ``"error"``.
            pool: What ``pool`` of this model has returned: processes that share the pairs.
            chunk_size: Number of pairs that a process of the pool takes at once. Default: as in ``encode``.

        Shape:
            Output: (pairs,) float32 for one class, (pairs, classes) for several; without the first axis for one pair.

        Raises:
            TypeError: If a row is not a pair of str. The message names the row.
            ValueError: If an argument is invalid, a score is not finite, a pair is too long and
                ``on_truncate="error"`` (the message names the row), or the activation returns NaN, does not return one
                row per pair, or is a softmax over a single score.

        Example:
            >>> from sbert import CrossEncoder
            >>> scorer = CrossEncoder("sbert-mini", classes=3)
            >>> scorer.predict(("A cat sleeps.", "A kitten naps.")).shape
            (3,)
        """
        settings = EncodeSettings(choose_prompt(self, prompt_name, prompt), batch_tokens, batch_size, on_truncate)
        as_array = convert_to_numpy and not convert_to_tensor
        job = Encoding(self, settings, None if pool is None else pool.devices[0], on_device=not as_array)
        execute = run_here if pool is None else pool.execute(self, chunk_size)
        scores = encode_texts(job, list(pairs_of(pairs)), show_progress_bar, execute)
        scores = activate(scores, self.activation if activation is None else activation)
        return convert(scores, is_pair(pairs), convert_to_numpy, convert_to_tensor)

    @partial(known_arguments, aliases=True, more=PredictOptions)
    def rank(
        self,
        query: str,
        documents: Iterable[str],
        top_k: int | None = None,
        return_documents: bool = False,
        *,
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        **options: Unpack[PredictOptions],
    ) -> list[Ranked]:
        """Rank documents by their score with a query, in descending order.

        Args:
            query: First text of each pair.
            documents: Second texts.
            top_k: Number of documents to return. Default: all.
            return_documents: Whether to return the texts as well.
            convert_to_numpy: Return each score as a float; if false, as a tensor, as with ``convert_to_tensor``.
            convert_to_tensor: Return each score as a tensor without dimensions, on the model's device.
            options: The other arguments of ``predict``; the row in an error is that of the document.

        Returns:
            A dict each: ``corpus_id``, the document's index, ``score`` and, if wanted, ``text``. Of equal scores the
            lower index comes first.

        Raises:
            TypeError: If the query or a document is not a str. The message names it.
            ValueError: If the model gives several scores, by which nothing can be ranked; or as ``predict`` does.

        Example:
            >>> from sbert import CrossEncoder
            >>> ranker = CrossEncoder("sbert-mini", classes=1)
            >>> found = ranker.rank("Who sleeps?", ["A cat sleeps.", "Taxes rise."], top_k=1)
            >>> len(found), sorted(found[0])
            (1, ['corpus_id', 'score'])
        """
        if self.classes != 1:
            raise ValueError(f"the model gives {self.classes} scores per pair, and ranks by one; use predict() instead")
        if not isinstance(query, str):
            raise TypeError(f"query is of type {type(query).__name__}; pass a str")
        texts = texts_of(documents, "documents")
        check_positive("top_k", top_k)
        scores = self.predict([(query, text) for text in texts], convert_to_tensor=True, **options)  # (texts,)
        numbers = scores.tolist() if convert_to_numpy and not convert_to_tensor else scores
        best = scores.argsort(descending=True, stable=True)[:top_k].tolist()
        if return_documents:
            return [Ranked(corpus_id=row, score=numbers[row], text=texts[row]) for row in best]
        return [Ranked(corpus_id=row, score=numbers[row]) for row in best]

    # ------------------------------------------------------------------------------------------------ training

    @partial(known_arguments, config=TrainingConfig)
    def fit(
        self,
        data: Iterable[Any] | Mapping[str, Iterable[Any]],
        loss: Loss | Mapping[str, Loss] | None = None,
        config: TrainingConfig | None = None,
        *,
        evaluator: Evaluate | None = None,
        columns: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
        label: str | Mapping[str, str] | None = None,
        resume: bool = False,
        show_progress_bar: bool | None = None,
    ) -> list[dict[str, Any]]:
        """Train in place with a ``Trainer``, and return its history.

        Args:
            data: Rows of two texts and a label, or, for losses of lists, of a query, a list of documents and a list of
                labels; a data frame or table of them; or several datasets, by name.
            loss: A loss of scores: any function ``loss(scores, labels)``, or ``loss(*scores, labels, mask=None)`` of
                lists; or one for each dataset, by name. Default: ``BinaryCrossEntropyLoss``, for one score and labels
                of 0 to 1, or ``CrossEntropyLoss`` for several classes.
            config: How to train.
            evaluator: A function from a model to a number, or to several by name; the best model by it is saved.
            columns: The data's columns of the first and the second text, if they are not named so; or by dataset.
            label: The data's column of labels, if it is not named label or score; or by dataset.
            resume: Whether to continue from the newest checkpoint in the output folder.
            show_progress_bar: Whether to show a progress bar. Default: on a terminal or in a notebook.

        Raises:
            TypeError: If a row, a text or a label is of the wrong type, naming it.
            ValueError: If the data, the loss and the model do not fit each other.

        Example:
            >>> from sbert import CrossEncoder, TrainingConfig
            >>> rows = [("A cat sleeps.", "A kitten naps.", 1.0), ("A cat sleeps.", "Taxes rise.", 0.0)]
            >>> ranker = CrossEncoder("sbert-mini", classes=1)
            >>> ranker.fit(rows, config=TrainingConfig(steps=2), show_progress_bar=False)[-1]["step"]
            2
            >>> from sbert.losses import LambdaLoss
            >>> ranked = [("Who sleeps?", ["A cat sleeps.", "Taxes rise.", "It rains."], [2, 0, 0])]
            >>> ranker.fit(ranked, LambdaLoss(), TrainingConfig(steps=2), show_progress_bar=False)[-1]["step"]
            2
        """
        chosen = default_score_loss(self) if loss is None else loss
        if config is not None and config.output is not None:
            check_activation(self.activation)  # Now, and not when the first checkpoint is written.
        trainer = Trainer(self, data, chosen, config, evaluator=evaluator, columns=columns, label=label)
        return trainer.fit(resume=resume, show_progress_bar=show_progress_bar)

    # ---------------------------------------------------------------------------------------------------- save

    @with_aliases
    def save(self, path: str | os.PathLike[str], name: str | None = None) -> None:
        """Write the model to a folder that transformers and sentence-transformers read.

        The write is atomic: the folder is complete or unchanged. An existing model is replaced as soon as no process
        is loading it, or after ten seconds.

        Args:
            path: The folder. Its parent folders are created.
            name: Name of the model in its card. Default: that of the folder, or of the training's output folder.

        Raises:
            ValueError: If the folder holds a file that no save of a model writes, with its name; or the activation
                cannot be saved.

        Example:
            >>> import tempfile
            >>> from sbert import CrossEncoder
            >>> scorer = CrossEncoder("sbert-mini", classes=3)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     scorer.save(f"{folder}/scorer")
            ...     CrossEncoder(f"{folder}/scorer").classes
            3
        """
        with replacing(Path(path), check_replaceable) as folder:
            self.write(folder, name, Path(path))

    def write(self, folder: Path, name: str | None, path: Path) -> None:
        """Write the files of the model to an existing folder.

        Args:
            folder: The folder. This write is not atomic, and deletes nothing; see ``save``.
            name: Name of the model, for its card.
            path: Where the folder will be, for its card.
        """
        write_cross_encoder(folder, name, path, self)

    def __repr__(self) -> str:
        kind = type(self.auto_model).__name__
        return f"CrossEncoder({kind}, classes={self.classes}, max_seq_length={self.max_seq_length})"
