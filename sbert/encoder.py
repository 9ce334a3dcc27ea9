"""SentenceEncoder: a chain of modules that maps sentences to vectors."""

from __future__ import annotations

import copy
import inspect
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from sbert.backends import ENGINES, choose_backend, choose_engine
from sbert.backends.huggingface import adapters_alone, decide_tokenizers
from sbert.batch import TokenBatch, TokenEmbeddings
from sbert.functional import ALL_SIMILARITIES, Similarity, check_similarity, pairwise_similarity
from sbert.inputs.arguments import check_choice, warn, with_aliases
from sbert.inputs.devices import adapt_half_precision, check_device, default_device
from sbert.inputs.prompts import ROLES, with_role_prompt
from sbert.inputs.texts import pairs_of, rows_of
from sbert.modules import LateInteraction, Router, Transformer
from sbert.modules.dense import OfEachVector
from sbert.modules.tokenizer import ReadsText
from sbert.pipeline.compute import encode_texts
from sbert.pipeline.model import EncoderMethods, choose_prompt, loading_options, set_up
from sbert.pipeline.notebook import Table
from sbert.pipeline.results import Encoded, as_encode, convert
from sbert.pipeline.run import Encoding, evaluating, output_dims, run_here
from sbert.pipeline.settings import EncodeSettings
from sbert.pipeline.sparse import convert_sparse, sparse_dot, top_dims
from sbert.pipeline.tokenize import Tokens, tokenize
from sbert.saving import verification
from sbert.saving.encoder_folder import fit_together, read_folder, write_folder
from sbert.saving.format import EncoderSettings, check_replaceable
from sbert.saving.other_readers import differences
from sbert.storage import hub
from sbert.storage.atomic import replacing
from sbert.storage.files import reading
from sbert.storage.folders import read_whole

if TYPE_CHECKING:  # What few calls need is imported by them: importing this must not take much longer than torch.
    from sbert.pipeline.batcher import Batcher
    from sbert.pipeline.pool import Pool


class SentenceEncoder(EncoderMethods, nn.Sequential):
    """Maps sentences to vectors by a chain of modules, loaded from a folder or the hub, or combined by the caller.

    Args:
        modules: A folder or a name on the hub; or modules, of which the first tokenizes text. Default:
            ``"sbert-mini"``, the model that comes with the library.
        device: Device to run on. Default: the accelerator that torch finds, else the CPU.
        dtype: Dtype of the weights and of the computation: ``"float32"``, ``"bfloat16"`` or ``"float16"``; with the
            backend ``"onnx"`` or ``"openvino"``, ``"int8"``, which is compared with float32 (``check_int8``). With
            ``"auto"``, weights are float32 (modules passed by the caller keep theirs), and ``encode`` computes in
            bfloat16 on a CUDA GPU, in float16 on one without bfloat16 (T4, V100), and in float32 elsewhere. Vectors
            are always float32.
        prompts: Texts to prepend to sentences, by name. Default: those of the folder.
        default_prompt_name: Name of the prompt that ``encode`` uses if it is given none.
        similarity_fn_name: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``; of sparse vectors, ``"dot"``;
            ``"maxsim"``, the default of a ``Transformer`` with modules after it but no pooling, which gives one vector
            per token.
        truncate_dim: Dimension to which each vector is truncated.
        revision: Branch, tag or commit on the hub.
        token: Access token for private models.
        cache_folder: Folder for downloads.
        local_files_only: Use only files that have been downloaded before.
        model_kwargs: What transformers loads a folder with: ``dtype``, ``attn_implementation`` ("eager", "sdpa"), or
            ``quantization_config``, such as ``transformers.BitsAndBytesConfig(load_in_4bit=True)``. With an engine,
            ``file_name``, the file in the folder that it runs, such as ``"onnx/model_qint8_avx512.onnx"``.
        tokenizer_kwargs: Arguments of the tokenizer, in place of those of the folder.
        config_kwargs: Values of the configuration, in place of those of the folder.
        backend: ``"plain"`` runs transformers as Hugging Face modules, with padding and without any of this library's
            ways to be faster; ``"auto"`` takes those, or what the environment variable ``SBERT_BACKEND`` says;
            ``"onnx"`` and ``"openvino"`` run single texts in ONNX Runtime and OpenVINO, on a CPU (``sbert.backends``).

    The other arguments of ``SentenceTransformer`` are taken as well: ``model_name_or_path=``, ``modules=``,
    ``processor_kwargs=``, ``trust_remote_code=``, though code from folders is never run, and ``model_card_data=None``.

    Raises:
        FileNotFoundError: If neither a folder nor a model on the hub has this name.
        ValueError: If a file of the folder is damaged or not supported. The message names the file and the remedy.

    References:
        Reimers and Gurevych, 2019, Sentence-BERT. https://arxiv.org/abs/1908.10084

    Example:
        >>> from sbert import SentenceEncoder
        >>> model = SentenceEncoder()
        >>> vectors = model.encode(["A cat sleeps.", "A kitten naps.", "Taxes rise."])
        >>> vectors.shape
        (3, 256)
        >>> model.similarity(vectors[0], vectors[1:]).round(2)  # a kitten is more similar than taxes
        array([[0.78, 0.26]], dtype=float32)
    """

    is_cross_encoder: ClassVar[bool] = False

    @with_aliases
    def __init__(
        self,
        *modules: str | os.PathLike[str] | nn.Module,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype = "auto",
        prompts: dict[str, str] | None = None,
        default_prompt_name: str | None = None,
        similarity_fn_name: str | None = None,
        truncate_dim: int | None = None,
        revision: str | None = None,
        token: str | bool | None = None,
        cache_folder: str | None = None,
        local_files_only: bool = False,
        model_kwargs: Mapping[str, Any] | None = None,
        tokenizer_kwargs: Mapping[str, Any] | None = None,
        config_kwargs: Mapping[str, Any] | None = None,
        backend: str = "auto",
    ) -> None:
        extra, in_engine, modules = dict(model_kwargs or {}), backend in ENGINES, modules or (hub.MINI,)
        file = extra.pop("file_name", None) if in_engine else None
        int8 = in_engine and (dtype == "int8" or "int8" in str(file))
        weights_dtype, arguments = loading_options("float32" if int8 else dtype, extra, tokenizer_kwargs, config_kwargs)
        device = check_device(device or ("cpu" if in_engine else default_device()))
        settings, reference, folder = EncoderSettings(), None, None
        if len(modules) == 1 and isinstance(modules[0], (str, os.PathLike)):
            find = partial(hub.resolve, token=token, cache_folder=cache_folder, local_files_only=local_files_only)
            folder = find(modules[0], organisation="sentence-transformers", revision=revision, file=file)
            # Weights that are there in half precision need no copy in it.
            keep_half = device.type == "cuda" and "quantization_config" not in arguments["model_kwargs"]
            read = partial(read_folder, folder, weights_dtype, find, arguments, keep_half)
            settings, chain, reference = read_whole(folder, read)
        else:
            chain = [module for module in modules if isinstance(module, nn.Module)]
            if len(chain) != len(modules):
                problem = f"SentenceEncoder() was given {', '.join(type(module).__name__ for module in modules)}"
                remedy = "pass the name or folder of a model, or modules one by one, as SentenceEncoder(first, second)"
                raise TypeError(f"{problem}; {remedy}; a list is passed as modules=")
        super().__init__(*chain)
        self._encoders: dict[str, SentenceEncoder] = {}  # Of the routes.
        for module in self.modules() if in_engine or choose_backend(backend) == "plain" else ():
            if isinstance(module, Transformer) and in_engine:
                module.engine = choose_engine(module.network, backend, int8, folder, file)
            elif isinstance(module, Transformer):
                module.backend = "plain"
        self.name_or_path: str = os.fspath(modules[0]) if isinstance(modules[0], (str, os.PathLike)) else ""
        set_up(self, prompts, default_prompt_name, (settings.prompts, settings.default_prompt_name))
        of_tokens = [isinstance(module, (OfEachVector, LateInteraction)) for module in chain[1:]]
        is_late = isinstance(chain[0], Transformer) and of_tokens and all(of_tokens)
        default = "maxsim" if is_late else "dot" if self.is_sparse else "cosine"
        self.similarity_fn_name = similarity_fn_name or settings.similarity_fn_name or default
        # Of sparse vectors, the number of dimensions that remain, those of the greatest magnitude.
        self.max_active_dims: int | None = settings.max_active_dims
        self.truncate_dim: int | None = settings.truncate_dim if truncate_dim is None else truncate_dim
        # As in the metadata of the card, such as "en"; None if it names none or several.
        self.language: str | None = settings.language
        self.automatic_dtype: bool = weights_dtype is None
        self._reference = reference
        self._warned_of: str | None = None
        self.to(device=device, dtype=weights_dtype or (self.dtype if self.dtype.itemsize == 2 and folder else None))
        adapt_half_precision(self, self.device)
        if folder is None:
            self._check_modules()
        else:
            self.eval()
            if not fit_together(chain):  # What loads can encode.
                with reading(folder, "modules that work together"):
                    self._check_modules()
                    self.get_sentence_embedding_dimension()
                    self._reference_vectors(["A text."])
        decide_tokenizers(self, None if reference is None else lambda: self.verify().max_difference)
        if int8:
            self.check_int8()

    def _check_modules(self) -> None:
        for encoder in self.encoders:
            for module in encoder:
                plain = type(module).__call__ is nn.Module.__call__
                if plain and "features" in inspect.signature(module.forward).parameters:
                    problem = f"{type(module).__name__} takes features, as modules of sentence-transformers do"
                    raise TypeError(f"{problem}; take a tensor (rows, dim), or TokenEmbeddings before the pooling")
            if not isinstance(first := encoder[0], ReadsText):
                raise TypeError(f"{type(first).__name__}, the first module, does not tokenize text; use a Transformer")

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_encoders": {}}

    def _repr_html_(self) -> str:
        """What notebooks display: the modules and the settings of ``encode``."""
        prompts = ", ".join(f"{name}: {prompt!r}" for name, prompt in self.prompts.items())
        settings = {"dimension": self.get_sentence_embedding_dimension(), "similarity": self.similarity_fn_name}
        settings |= {"prompts": prompts or "none", "default prompt": self.default_prompt_name or "none"}
        settings |= {"longest input": f"{self.max_seq_length} tokens", "device": self.device, "dtype": self.dtype}
        modules = [(f"module {number}", repr(module)) for number, module in enumerate(self)]
        return Table([type(self).__name__, self.name_or_path], [*modules, *settings.items()])._repr_html_()

    # ---------------------------------------------------------------------------------------------- properties

    def __getitem__(self, index: Any) -> Any:
        return nn.Sequential(*list(self)[index]) if isinstance(index, slice) else super().__getitem__(index)

    @property
    def routes(self) -> tuple[str, ...]:
        """The names of the routes, if there is a ``Router`` or ``LateInteraction`` among the modules."""
        routers = (module for module in self._modules.values() if isinstance(module, (Router, LateInteraction)))
        return next((tuple(module.routes) for module in routers), ())

    @property
    def encoders(self) -> list[SentenceEncoder]:
        """The encoders of the routes; without a ``Router``, the model itself."""
        return [self.route(name) for name in self.routes] or [self]

    def route(self, name: str | None = None) -> SentenceEncoder:
        """The encoder of one route; without a ``Router``, the model itself.

        It is the same object in every call, shares the modules, and has the settings that the model has now.

        Args:
            name: The route. Default: the default route of the ``Router``.

        Raises:
            ValueError: If there is no such route, or no default route.
        """
        chain: list[Any] = []
        has_router = False
        for module in self._modules.values():
            if isinstance(module, Router):
                has_router = True
                chain += module.routes[name := module.find_route(name)]
            elif isinstance(module, LateInteraction) and (has_router or module.routes):
                has_router = True
                chain.append(module.in_role(name := name or "document"))
            else:
                chain.append(module)
        if not has_router:
            if name not in (None, *ROLES):
                raise ValueError(f"there is no route {name!r}: the model has no Router; leave task= or route= out")
            return self
        encoder = self._encoders.setdefault(str(name), copy.copy(self))
        modules = encoder._modules
        if list(modules.values()) != chain:
            modules = {str(number): module for number, module in enumerate(chain)}
        vars(encoder).update({**vars(self), "_modules": modules, "_encoders": {}, "_reference": None})
        return encoder

    @property
    def _reader(self) -> Any:
        first: Any = next(iter(self._modules.values()))  # ``self[0]`` takes twenty times as long.
        return first.routes[first.default_route or self.routes[0]][0] if isinstance(first, Router) else first

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of the first module; with a ``Router``, of its default route, or else the first route."""
        return self._reader.tokenizer

    @tokenizer.setter
    def tokenizer(self, tokenizer: Any) -> None:
        self._reader.tokenizer = tokenizer

    @property
    def max_seq_length(self) -> int | None:
        """Longest input in tokens, including special tokens and the prompt; None without a limit.

        With a ``Router``, it is that of the default route, or else the first; ``route(name)`` has that of each.
        """
        return self._reader.max_seq_length  # type: ignore[no-any-return]

    @max_seq_length.setter
    def max_seq_length(self, length: int | None) -> None:
        self._reader.max_seq_length = length

    @property
    def similarity_fn_name(self) -> str:
        """Name of the similarity that the model was trained for."""
        return self._similarity_fn_name

    @similarity_fn_name.setter
    def similarity_fn_name(self, name: str) -> None:
        if self.is_sparse and check_similarity(name, ALL_SIMILARITIES) != "dot":
            raise ValueError(f"sparse vectors are compared by their dot product, not {name}; pass 'dot'")
        self._similarity_fn_name = check_similarity(name, ALL_SIMILARITIES)

    @property
    def is_multi_vector(self) -> bool:
        """Whether ``encode`` gives one vector per token, which MaxSim compares."""
        return self._similarity_fn_name == "maxsim"

    @property
    def is_sparse(self) -> bool:
        """Whether the vectors are sparse: a dimension is a word of the vocabulary, and most are 0."""
        modules = [module for encoder in self.encoders for module in encoder._modules.values()]
        return any(getattr(module, "is_sparse", False) for module in modules)

    def get_sentence_embedding_dimension(self) -> int:
        """Dimension of the vectors that ``encode`` returns."""
        dims = [output_dims(encoder, self.device)[-1] for encoder in self.encoders]
        if len(set(dims)) > 1:
            listed = ", ".join(f"{route}: {dim}" for route, dim in zip(self.routes, dims, strict=True))
            raise ValueError(f"the routes give vectors of different dimensions ({listed}); add a Dense to one of them")
        return dims[0] if self.truncate_dim is None else min(dims[0], self.truncate_dim)

    # ------------------------------------------------------------------------------------------------- encode

    def forward(self, value: TokenBatch) -> Tensor | TokenEmbeddings:
        """Apply the modules in order to a batch of tokens.

        Raises:
            TypeError: If the input is not a batch of tokens.
        """
        if not isinstance(value, TokenBatch):
            kind = type(value).__name__
            raise TypeError(f"the model was called with a {kind}; pass texts to encode(), or, model.tokenize(texts)")
        return super().forward(value)  # type: ignore[no-untyped-call, no-any-return]

    def tokenize(self, sentences: Iterable[str], prompt: str = "") -> TokenBatch:
        """Tokenize sentences to one batch, for calling the encoder with a gradient.

        Example:
            >>> from sbert import SentenceEncoder
            >>> model = SentenceEncoder()
            >>> model(model.tokenize(["One.", "Two."])).shape
            torch.Size([2, 256])
        """
        texts = list(rows_of(sentences))
        return self.tokens(texts, prompt).batch(np.arange(len(texts)))

    def tokens(self, texts: Sequence[str], prompt: str = "", max_length: int | None = None) -> Tokens:
        """Token ids of texts after a prompt, from which a trainer takes its batches."""
        roles = next((module for module in self._modules.values() if isinstance(module, LateInteraction)), None)
        return tokenize(self._reader, texts, prompt, max_length, roles)

    @as_encode
    @with_aliases
    def encode(
        self,
        sentences: str | Iterable[str],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int | None = None,
        batch_tokens: int | None = None,
        show_progress_bar: bool | None = None,
        output_value: str | None = "sentence_embedding",
        precision: str = "float32",
        ranges: npt.ArrayLike | None = None,
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        device: str | torch.device | Sequence[str | torch.device] | None = None,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
        max_active_dims: int | None = None,
        on_truncate: str = "warn",
        pool: Pool | None = None,
        chunk_size: int | None = None,
        out: str | os.PathLike[str] | None = None,
        overwrite: bool = False,
        shard: tuple[int, int] | None = None,
        task: str | None = None,
    ) -> Encoded:
        """Encode sentences to vectors, in the order of the sentences.

        The vector of a sentence does not depend on the other sentences. Each distinct sentence is encoded once, in
        batches of similar length. Threads and forked processes may call this at the same time. Forward hooks on the
        model and on its modules run for each batch; with ``output_value="token_embeddings"``, those on the model do
        not.

        One warning per model counts the sentences that it cannot read, usually of a language that it was not trained
        on: at least half of their tokens are not in the vocabulary, or single letters inside words of an alphabet other
        than Latin. Punctuation and symbols do not count. So an emoji alone is worth a warning;
        one in a sentence is not, though sentences that differ in nothing but unknown words or emoji have the same
        vector. To silence it: ``warnings.filterwarnings("ignore", "unknown tokens")``.

        Args:
            sentences: A sentence, or an iterable of sentences: list, array, Series, Arrow array, Column, generator.
            prompt_name: Name of the prompt to prepend to each sentence.
            prompt: Text to prepend to each sentence; ``""`` for none, even if the model has a default prompt.
            batch_size: Number of sentences per batch. Default: as many as ``batch_tokens`` allows.
            batch_tokens: Maximum number of tokens per batch, including padding; a batch that does not fit in memory is
                halved.
            show_progress_bar: Whether to show a progress bar. Default: from 2,000 sentences on, on a terminal or in a
                notebook.
            output_value: ``"sentence_embedding"``, or ``"token_embeddings"`` for one tensor (tokens, dim) per
                sentence; None for a dict of both per sentence.
            precision: ``"float32"``; ``"float16"``; ``"int8"``, one byte per dimension; or one bit per dimension, eight
                in a byte: ``"ubinary"`` (uint8) or ``"binary"`` (int8).
            ranges: Ranges for int8, computed from a sample of vectors by ``sbert.search.calibrate``.
            convert_to_numpy: Return an array. If this and ``convert_to_tensor`` are both false: a list of tensors.
            convert_to_tensor: Return a tensor on the device of the model, which autograd can use.
            device: Device to move the model to first; or several, such as ``["cuda:0", "cuda:1"]`` or ``["cpu"] * 2``,
                for a pool with a process for each during this call.
            normalize_embeddings: Scale each vector to length 1.
            truncate_dim: Dimension to which each vector is truncated. Default: that of the model.
            max_active_dims: Number of dimensions of a sparse vector that remain. Default: that of the model.
            on_truncate: What to do if sentences exceed ``max_seq_length``: ``"warn"`` once with their number,
                ``"ignore"``, or ``"error"``.
            pool: What ``pool`` of this model has returned: processes that share the sentences. Their vectors are those
                of one process up to rounding; equal sentences are encoded once per window.
            chunk_size: Number of sentences that a process of the pool takes at once. Default: 1,024, or 8,192 for
                accelerators; fewer if that leaves a process idle.
            out: Where to write vectors while reading, so that neither sentences nor vectors have to fit in memory: a
                .npy file, or a .parquet file with the columns to keep of a ``sbert.data.Texts``. The result is a
                read-only memory map of the .npy file, else a ``sbert.vector_files.VectorFiles``, which ``np.asarray``
                reads. Of sparse vectors, a .npz file of SciPy, which is written at the end, and replaced.
            overwrite: With ``out``, whether to start from scratch in any case. By default, a call that was interrupted
                goes on where it was, as the manifest beside the output says, a finished one changes nothing (the
                sentences are read once more, to compare them), and an output of anything else is an error.
            shard: With ``out``, which part of the sentences to encode, (i, n) from (0, n) to (n - 1, n), to a file of
                its own, such as vectors-00003-of-00016.npy; one that is finished is kept. See
                ``sbert.vector_files.merge``.
            task: The route that the sentences take, in a model with a ``Router``. Default: its default route.

        Shape:
            Output: (sentences, dim) float32; (dim,) for a single str; (0, dim) for none. Of a sparse encoder: a
            ``scipy.sparse.csr_array``, (1, dim) for a single str, or a sparse tensor. Of a model without a pooling: a
            list of (tokens, dim), one for each sentence.

        Raises:
            ImportError: If the vectors are sparse, an array is wanted, and SciPy is not installed.
            TypeError: If a sentence is not a str (the message names its row), or the input is a data frame (the
                message names its columns).
            OSError: If the disk is full; the message says how to go on.
            RuntimeError: If another process is writing the same output.
            ValueError: If an argument is invalid, a vector is not finite, a sentence is too long and
                ``on_truncate="error"`` (the message names the row), or ``out`` exists and is of another call.

        Example:
            >>> from sbert import SentenceEncoder
            >>> model = SentenceEncoder()
            >>> model.encode("One sentence.").shape
            (256,)
            >>> model.encode(["One.", "Two."], normalize_embeddings=True, truncate_dim=64).shape
            (2, 64)
        """
        single = isinstance(sentences, str)
        if isinstance(sentences, str) and "." in sentences[:-1] and os.path.isfile(sentences):
            warn(f"the text {sentences!r:.90} is the name of a file; for the texts in it, pass sbert.data.Texts(path)")
        as_array = convert_to_numpy and not convert_to_tensor and output_value == "sentence_embedding"
        if output_value not in ("sentence_embedding", None):
            check_choice("output_value", output_value, ("sentence_embedding", "token_embeddings"))
            if precision != "float32" or normalize_embeddings or truncate_dim:
                raise ValueError("token embeddings take no precision=, normalize_embeddings= and truncate_dim=")
        if self.is_multi_vector and (precision != "float32" or out is not None):
            raise ValueError("vectors per token are arrays of different lengths; leave precision= and out= out")
        if out is not None and (not as_array or single or (self.is_sparse and (shard or Path(out).suffix != ".npz"))):
            raise ValueError("out= takes sentence embeddings of several sentences, as an array; sparse ones as .npz")
        if out is None and (overwrite or shard is not None):
            raise ValueError("shard= and overwrite= are for files; pass out= as well")
        if pool is not None and device is not None:
            raise ValueError(f"device={device!r:.60} and pool= were passed; pass one: a pool has its own devices")
        settings = EncodeSettings(
            choose_prompt(self, prompt_name, prompt),
            batch_tokens,
            batch_size,
            on_truncate,
            self.truncate_dim if truncate_dim is None else truncate_dim,
            normalize_embeddings,
            precision,
            ranges,
            token_embeddings=output_value != "sentence_embedding",
            sparse=self.is_sparse,
            max_active_dims=self.max_active_dims if max_active_dims is None else max_active_dims,
        )
        with nullcontext(pool) if device is None else self.on_devices(device) as workers:
            model = self.route(task)
            job = Encoding(model, settings, None if workers is None else workers.devices[0], on_device=not as_array)
            execute = run_here if workers is None else workers.execute(model, chunk_size)
            if out is not None and not self.is_sparse:
                from sbert.vector_files.write import write_vectors

                return cast("Encoded", write_vectors(job, execute, sentences, out, overwrite, shard, show_progress_bar))
            if columns := getattr(sentences, "keep", ()):
                warn(f"keep={columns} has no effect without out=; pass out= with a .parquet file")
            texts: list[Any] = [sentences] if single else list(rows_of(sentences))
            vectors = encode_texts(job, texts, show_progress_bar, execute)
            if output_value is None:
                # The vectors of sparse encoders, too, are dense here.
                job.settings = replace(settings, token_embeddings=False, sparse=False, max_active_dims=None)
                both = zip(vectors, encode_texts(job, texts, quiet=True, execute=execute), strict=True)
                vectors = [{"token_embeddings": tokens, "sentence_embedding": vector} for tokens, vector in both]
            elif settings.sparse and not settings.token_embeddings:
                dim = model.get_sentence_embedding_dimension() if vectors == [] else model[0].vocab_size
                return cast("Encoded", convert_sparse(vectors, dim, single, convert_to_numpy, convert_to_tensor, out))
        vectors = list(map(Tensor.numpy, vectors)) if as_array and isinstance(vectors, list) else vectors
        return cast("Encoded", convert(vectors, single, convert_to_numpy, convert_to_tensor))

    def decode(self, vectors: Any, top: int = 10) -> list[list[tuple[str, float]]]:
        """What sparse vectors say in words: those with the greatest weights.

        Args:
            vectors: What ``encode`` has returned.
            top: Maximum number of words of each vector.

        Shape:
            vectors: (rows, vocabulary), or (vocabulary,) for one vector.

        Returns:
            For each vector a list of words with their weights, the greatest first.

        Example:
            >>> from sbert import Pooling, SentenceEncoder, Transformer
            >>> model = SentenceEncoder(Transformer("sbert-mini", head="new"), Pooling("splade"))
            >>> [words] = model.decode(model.encode("A cat sleeps."), top=3)
            >>> sorted(word for word, weight in words)
            ['[CLS]', 'asleep', 'cat']
        """
        word = self.tokenizer.convert_ids_to_tokens
        return [[(word(dim), weight) for dim, weight in row] for row in top_dims(vectors, top)]

    def compile(self, **options: Any) -> None:
        """Compile the transformer with ``torch.compile`` at the next call of ``encode``.

        That call takes long. Compiling helps on a GPU; on a CPU, the forward used without it is faster. Shapes are
        dynamic unless the options say otherwise.

        Args:
            options: Options of ``torch.compile``, such as ``mode`` and ``backend``.

        Example:
            >>> from sbert import SentenceEncoder
            >>> compiled = SentenceEncoder()
            >>> compiled.compile(backend="eager")
            >>> compiled.encode("A cat sleeps.").shape
            (256,)
        """
        self._compiling = {"dynamic": True, **options}

    @as_encode
    def encode_query(self, sentences: str | Iterable[str], **options: Any) -> Encoded:
        """Encode queries: ``encode`` with the prompt "query" of the model, if it has one.

        Args:
            sentences: As in ``encode``.
            options: The other arguments of ``encode``.

        Example:
            >>> from sbert import SentenceEncoder
            >>> model = SentenceEncoder()
            >>> model.encode_query("Who sleeps?").shape
            (256,)
        """
        return self._encode_for("query", sentences, options)

    @as_encode
    def encode_document(self, sentences: str | Iterable[str], **options: Any) -> Encoded:
        """Encode documents: ``encode`` with the prompt "document", "passage" or "corpus", the first that exists.

        Args:
            sentences: As in ``encode``.
            options: The other arguments of ``encode``.

        Example:
            >>> from sbert import SentenceEncoder
            >>> model = SentenceEncoder()
            >>> model.encode_document(["The cat sleeps."]).shape
            (1, 256)
        """
        return self._encode_for("document", sentences, options)

    def _encode_for(self, role: str, sentences: str | Iterable[str], options: dict[str, Any]) -> Encoded:
        options = ({"task": role} if self.routes else {}) | with_role_prompt(self.prompts, role, options)
        return cast("Encoded", self.encode(sentences, **options))

    def batcher(
        self, *, max_wait: float | None = None, max_tokens: int | None = None, max_queue: int = 1024
    ) -> Batcher:
        """Join the requests of many threads or coroutines into batches, as servers do.

        Args:
            max_wait: Seconds that a request may wait for others while the model is idle. Requests that come while it
                is busy form the next batch in any case. Default: a moment, if the callers of the last batch are
                expected back.
            max_tokens: Number of tokens from which a batch takes no further texts. Default: by device.
            max_queue: Number of requests that may wait; one more is refused immediately.

        Example:
            >>> from concurrent.futures import ThreadPoolExecutor
            >>> from sbert import SentenceEncoder
            >>> model = SentenceEncoder()
            >>> with model.batcher() as batcher, ThreadPoolExecutor(32) as threads:
            ...     vectors = list(threads.map(batcher.encode, ["One.", "Two.", "Three."]))
            >>> vectors[2].shape
            (256,)
        """
        from sbert.pipeline.batcher import Batcher

        return Batcher(self, max_wait=max_wait, max_tokens=max_tokens, max_queue=max_queue)

    # --------------------------------------------------------------------------------------------- similarity

    @property
    def similarity(self) -> Similarity:
        """The model's similarity of every vector of a with every vector of b: a function of a and b.

        Shape:
            a: (n, dim) or (dim,). b: (m, dim) or (dim,). Output: (n, m), NumPy where both are NumPy.

        Example:
            >>> from sbert import SentenceEncoder
            >>> model = SentenceEncoder()
            >>> one, two = model.encode(["A cat sleeps.", "A kitten naps."])
            >>> model.similarity(one, two).shape
            (1, 1)
        """
        return cast("Similarity", sparse_dot if self.is_sparse else ALL_SIMILARITIES[self.similarity_fn_name])

    @property
    def similarity_pairwise(self) -> Similarity:
        """The model's similarity of each vector of a with the same row of b: a function of a and b.

        Shape:
            a: (rows, dim). b: (rows, dim). Output: (rows,), NumPy where both are NumPy.

        Example:
            >>> from sbert import SentenceEncoder
            >>> model = SentenceEncoder()
            >>> vectors = model.encode(["A cat sleeps.", "A kitten naps."])
            >>> model.similarity_pairwise(vectors, vectors).round(4)
            array([1., 1.], dtype=float32)
        """
        if self.is_sparse:
            return cast("Similarity", partial(sparse_dot, pairs=True))
        return cast("Similarity", partial(pairwise_similarity, name=self.similarity_fn_name))

    def predict(self, pairs: Iterable[tuple[str, str]]) -> npt.NDArray[np.float32]:
        """The similarity of the query and the document of each pair, as rerankers have it: each text is encoded once.

        Shape:
            Output: (pairs,).

        Raises:
            TypeError: If a row is not a pair of str. The message names the row.

        Example:
            >>> from sbert import SentenceEncoder
            >>> SentenceEncoder().predict([("Who naps?", "A cat naps."), ("Who naps?", "Taxes rise.")]).round(1)
            array([0.6, 0.3], dtype=float32)
        """
        listed = list(pairs_of(pairs))
        queries, documents = ([pair[side] for pair in listed] for side in (0, 1))
        vectors = self.encode_query(queries), self.encode_document(documents)
        return self.similarity_pairwise(*vectors) if listed else np.zeros(0, np.float32)

    # ------------------------------------------------------------------------------------- save, push, verify

    @with_aliases
    def save(
        self,
        path: str | os.PathLike[str],
        name: str | None = None,
        *,
        create_model_card: bool = True,
        merge_adapters: bool = True,
    ) -> None:
        """Write the model to a folder that this library and sentence-transformers read.

        The write is atomic: the folder is complete or unchanged. An existing model is replaced as soon as no process
        is loading it, or after ten seconds. The vectors of five short texts are saved for ``verify``. One warning
        names modules of the caller's own, which no other library reads.

        Args:
            path: The folder. Its parent folders are created.
            name: Name of the model in its card. Default: that of the folder, or of the training's output folder.
            create_model_card: Whether to write the card, README.md.
            merge_adapters: Whether adapters of peft are merged into their base model, so that the folder is an ordinary
                model; False saves them alone, with the name of the base model, which is loaded with them.

        Raises:
            ValueError: If the folder contains, at any depth, a file that is not part of a model (the message names
                it), or a module of the caller's own cannot be saved; or adapters would be merged into
                quantized weights, or saved alone although their base model is in memory only.

        Example:
            >>> import tempfile
            >>> from sbert import SentenceEncoder
            >>> model = SentenceEncoder()
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     model.save(f"{folder}/model")
            ...     SentenceEncoder(f"{folder}/model").get_sentence_embedding_dimension()
            256
        """
        with replacing(Path(path), check_replaceable) as folder:
            recorded = self.write(folder, name, Path(path), merge_adapters)
            if not create_model_card:
                (folder / "README.md").unlink(missing_ok=True)
        reasons = differences([module for encoder in self.encoders for module in encoder])
        if reasons is not None and reasons != self._warned_of:
            warn(f"not every program reads this model as it is: {reasons}")
        self._warned_of = reasons
        self._reference = recorded

    def write(self, folder: Path, name: str | None, path: Path, merge_adapters: bool = True) -> verification.Reference:
        """Write the files of the model to an existing folder; return the reference texts with their vectors.

        Args:
            folder: The folder. This write is not atomic, and deletes nothing; see ``save``.
            name: Name of the model, for its card.
            path: Where the folder will be, for its card.
            merge_adapters: As in ``save``.
        """
        recorded = verification.record(self._reference_vectors(verification.REFERENCE_TEXTS))
        token = adapters_alone.set(not merge_adapters)
        try:
            with evaluating(self):
                dims = {
                    module: dim
                    for encoder in self.encoders
                    for module, dim in zip(list(encoder)[1:], output_dims(encoder, self.device), strict=False)
                }
                write_folder(folder, self, dims, name, path, recorded)
        finally:
            adapters_alone.reset(token)
        return recorded

    def _reference_vectors(self, texts: list[str]) -> npt.NDArray[np.float32]:
        """Vectors of texts without a prompt, computed in the dtype of the weights; those of routes side by side."""
        encoders = list(map(self.route, ROLES)) if self.is_multi_vector else self.encoders
        jobs = [Encoding(encoder, EncodeSettings(plain=True)) for encoder in encoders]
        vectors = (encode_texts(job, texts, quiet=True) for job in jobs)  # Of tokens, their mean counts.
        means = [torch.stack([x.mean(0) for x in part]) if isinstance(part, list) else part for part in vectors]
        if self.is_sparse:  # Of groups of dimensions their maxima, or the file would be larger than one that is read.
            means = [nn.functional.adaptive_max_pool1d(part, 1024) for part in means]
        return np.concatenate(means, 1)

    @property
    def has_reference(self) -> bool:
        """Whether the model has reference vectors, which ``verify`` needs."""
        return self._reference is not None

    def check_int8(self, texts: Iterable[str] = verification.COMPARED_TEXTS) -> float:
        """How much of the similarities is left in int8: their rank correlation with those in float32.

        Args:
            texts: What is compared, all pairs of it. Default: 20 texts of this library.

        Returns:
            Spearman's rank correlation of their cosine similarities: 1 for a model that does not compute in int8.

        Raises:
            ValueError: If it is below 0.99. A model that is loaded with ``dtype="int8"`` is refused so.

        Example:
            >>> from sbert import SentenceEncoder
            >>> model = SentenceEncoder()
            >>> model.check_int8(["A cat sleeps.", "A kitten naps.", "Taxes rise."])
            1.0
        """
        texts, call = list(texts), Encoding(self.encoders[0], EncodeSettings(on_truncate="ignore"))
        vectors, expected = (encode_texts(job, texts, quiet=True).numpy() for job in (call, call.in_full_precision()))
        return verification.compare_int8(vectors, expected)

    def verify(self, tolerance: float | None = None) -> verification.Verification:
        """Encode the reference texts that were saved with the model, and compare the vectors with the saved ones.

        Args:
            tolerance: Largest absolute difference of one dimension that is accepted. Default: 1e-4; for weights in
                half precision what its rounding makes of these vectors.

        Returns:
            The differences, and the packages whose versions changed; true if the vectors are the same.

        Raises:
            ValueError: If the model was neither loaded from nor saved to a folder with reference vectors.

        Example:
            >>> import tempfile
            >>> from sbert import SentenceEncoder
            >>> model = SentenceEncoder()
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     model.save(f"{folder}/model")
            ...     print(SentenceEncoder(f"{folder}/model").verify())
            same vectors: max difference 0.0e+00 (tolerance 1e-04); versions changed since saving: none
        """
        if self._reference is None:
            raise ValueError("the model has no reference vectors; call save(), which writes some")
        vectors = self._reference_vectors(self._reference["texts"])
        if tolerance is None:  # Four units in the last place of the largest value.
            tolerance = max(1e-4, 4 * torch.finfo(self.dtype).eps * float(np.abs(vectors).max()))
        return verification.compare_vectors(self._reference, vectors, tolerance)
