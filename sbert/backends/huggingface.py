"""Loading models and tokenizers by the transformers library: the only file that knows how."""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sbert.inputs.arguments import warn
from sbert.inputs.extras import require
from sbert.storage.files import (
    UnreadableError,
    check_files,
    is_failure,
    load_error,
    one_line,
    read_object,
    reading,
    write_json,
)
from sbert.storage.processes import Lock
from sbert.storage.weight_files import check_ids, read_header, warn_of_unused, weights_file, within

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

TOKENIZER_FILES = ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"]
TOKENIZER_FILES += ["vocab.txt", "vocab.json", "merges.txt", "sentencepiece.bpe.model", "spiece.model"]
ADAPTER_FILES = ("adapter_model.safetensors", "adapter_model.bin")
# Maximum counts in a configuration: transformers builds as many objects before weights can be checked.
_MOST = {"layer": 1000, "layers": 1000, "labels": 100_000}
# Classes of tokenizers that transformers takes from tokenizer.json as it is; for others, it builds the steps again.
AS_IN_FILE = ("TokenizersBackend", "PreTrainedTokenizerFast")
# What a tokenizer_config.json may say of BERT's steps, and its name in tokenizer.json.
BERT_STEPS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
# Texts whose tokens show it if steps of a tokenizer differ.
_PROBES = ["The Quick BROWN Fox.", "naïve café, ÀÉÎ, ñ", " a boat", "  b\tc\n d ", "文の意味 문장 Смысл"]
_PROBES += ["3.14 2023 1,000,000"]
_PROBES += ["def f(x): return x**2  # a_b", "don't e-mail! ½ ﬁ", "abcdefghijklmnopqrstuvwxyz 0123456789"]
# Other values may make transformers download a kernel, which is code.
ATTENTIONS = ("eager", "sdpa")


# Held while transformers is imported, loads or saves. Its modules have circular imports, in which a second thread finds
# an incomplete module; and it sets options of the whole process, which two threads would restore in the wrong order.
lock: Lock = Lock()
# Of every loading: nothing is downloaded, and no code of a folder runs.
_LOCAL = {"local_files_only": True, "trust_remote_code": False}
# Whether adapters are saved alone, rather than merged into their base model.
adapters_alone: ContextVar[bool] = ContextVar("sbert_adapters_alone", default=False)


def import_from(name: str, module: str = "transformers") -> Any:
    """An attribute of a module of transformers, imported by one thread at a time.

    ``from transformers import x`` fails while another thread is importing transformers, because it reads a module
    that is about to be replaced.
    """
    with lock:
        import_module("transformers")  # All of it: a thread that imports it fails if another one imports a part.
        return getattr(import_module(module), name)


@contextmanager
def silence() -> Iterator[None]:
    """Without progress bars and reports of transformers; one thread at a time."""
    with lock:
        logging = import_from("logging", "transformers.utils")
        level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            yield
        finally:
            logging.set_verbosity(level)
            if bars:
                logging.enable_progress_bar()


def find_adapters(model: Any) -> dict[str, Any]:
    """The layers of a model that have adapters of peft, by name."""
    if "peft" not in sys.modules:  # Without it there are no adapters.
        return {}
    kind = import_from("BaseTunerLayer", "peft.tuners.tuners_utils")
    return {name: module for name, module in model.named_modules() if isinstance(module, kind)}


def merge_adapters(model: Any) -> Any:
    """The model; if it has adapters of peft, a copy with the adapters merged into its weights.

    A saved folder is then an ordinary model, which needs neither peft nor the base model of the adapters.

    Raises:
        ValueError: If the weights are quantized.
    """
    if not find_adapters(model):
        return model
    if getattr(model, "is_quantized", False):
        remedy = "save with merge_adapters=False, load that without quantization_config, and save it merged"
        raise ValueError(f"adapters cannot be merged into the quantized weights of {model.name_or_path!r}; {remedy}")
    model = copy.deepcopy(model)
    if hasattr(model, "merge_and_unload"):  # peft's model around it.
        return model.merge_and_unload()
    for name, module in find_adapters(model).items():
        module.merge()
        model.set_submodule(name, module.get_base_layer())
    model._hf_peft_config_loaded = False
    vars(model).pop("_weight_conversions", None)  # Names of the adapter, if transformers has loaded one.
    return model


def save_adapter(model: Any, folder: Path) -> None:
    """Write the adapter of a transformer to a folder, with the name of the base model on the hub, or its folder.

    Raises:
        ValueError: If the base model was not loaded by a name.
    """
    if not model.name_or_path:
        remedy = "save it, load it from there and add the adapter; or pass merge_adapters=True"
        raise ValueError(f"the adapter's base model is in memory alone, where no folder can name it; {remedy}")
    model.save_pretrained(folder, safe_serialization=True)
    path, base = folder / "adapter_config.json", Path(model.name_or_path).absolute().as_posix()
    on_hub = re.fullmatch(r".*/models--([^/]+)/snapshots/[^/]+", base)
    name = on_hub[1].replace("--", "/", 1) if on_hub else base
    write_json(path, {**read_object(path), "base_model_name_or_path": name})


def load_adapter(model: PreTrainedModel, folder: Path) -> None:
    """Load the adapter of a folder into a transformer."""
    with require(f"the adapter of {folder / 'adapter_config.json'}", "peft", "adapters"), lock:
        import_module("transformers")
        import_module("peft")
    check_files(folder)
    header = read_header(folder, ADAPTER_FILES)
    header.check_dtypes()
    with silence(), reading(folder, "an adapter"), within(header, folder / "adapter_config.json"):
        model.load_adapter(str(folder), is_trainable=True)
    model.eval()


def load_config(folder: Path, options: dict[str, Any]) -> PretrainedConfig:
    """The configuration in ``config.json``, with ``options`` in place of its values."""
    path = folder / "config.json"
    if not path.exists():
        raise UnreadableError(folder, "holds no config.json, so it is not a model", "pass the folder of a model")
    check_files(folder)
    values = read_object(path)
    _refuse_other_files(values, "configuration_files", path)
    _check_counts({**values, **options}, path)
    try:
        with silence():
            translated = _in_terms_of_transformers(values, path)
            if translated is values:
                kind = import_from("AutoConfig")
                config = kind.from_pretrained(folder, **_LOCAL)
            else:
                kind = import_from("CONFIG_MAPPING")[translated["model_type"]]
                config = kind.from_dict({**translated, "name_or_path": str(folder)})
            _set_values(config, options, path)
        vars(config).pop("auto_map", None)  # The code that it names is neither run nor saved.
    except UnreadableError:
        raise
    except Exception as error:
        if "trust_remote_code" in str(error):
            reason = f"needs code from its folder (model_type {values.get('model_type')!r}), which is never run"
            raise UnreadableError(path, reason, "use a model that transformers knows") from error
        raise UnreadableError(path, f"is no configuration that transformers knows ({one_line(error)})") from error
    for name in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"):
        size = getattr(config, name, None)
        if isinstance(size, int) and size < 1:
            raise UnreadableError(path, f"gives {name}={size} where at least 1 is expected")
    if getattr(config, "_attn_implementation", None) not in (None, *ATTENTIONS):
        config._attn_implementation = None
    if getattr(config, "is_causal", True) is None:
        del config.is_causal  # With None, attention would be bidirectional in padded batches, and causal in others.
    return config


def _set_values(config: PretrainedConfig, options: dict[str, Any], path: Path) -> None:
    """Set values of the configuration at a path, now that it was read: its reader takes others as files to read."""
    names = {*config.to_dict(), *config.attribute_map, "attn_implementation"}
    for key, value in options.items():
        if key not in names and not isinstance(getattr(type(config), key, None), property):
            warn(f"config_kwargs {key}={value!r:.80} ignored: it is no value of the configuration {path}")
            continue
        before: Any = getattr(config, key, None)
        if isinstance(value, dict) and hasattr(before, "to_dict"):  # Some values of a configuration inside it.
            value = type(before)(**{**before.to_dict(), **value})
        setattr(config, "_attn_implementation" if key == "attn_implementation" else key, value)


def _refuse_other_files(values: dict[str, Any], key: str, path: Path) -> None:
    """Raise a ValueError if a file names others for transformers to read in its place, which nothing has checked."""
    if values.get(key):
        reason = f"names other files under {key}, which are not read"
        raise UnreadableError(path, reason, f"remove {key}, or use another model")


def _check_counts(values: dict[str, Any], path: Path) -> None:
    """Raise a ValueError for an implausible number of layers or labels, also in nested configurations."""
    for key, value in values.items():
        most = _MOST.get(key.rpartition("_")[2])
        if isinstance(value, dict):
            _check_counts(value, path)
        elif most is not None and isinstance(value, int) and value > most:
            raise UnreadableError(path, f"gives {key}={value} where at most {most} is expected")


def load_network(
    folder: Path, config: PretrainedConfig, dtype: torch.dtype, options: Mapping[str, Any], with_head: bool = False
) -> PreTrainedModel:
    """The transformer in ``folder``; of an encoder-decoder, only the encoder.

    Args:
        folder: Folder of the model.
        config: Configuration.
        dtype: Dtype of the weights.
        options: ``attn_implementation`` and ``quantization_config``, as transformers takes them.
        with_head: Whether to load it as a masked language model, with its head.

    Raises:
        ValueError: If a file is damaged, or weights of the configuration are missing.
    """
    # The same class for most models; for T5-family models, the encoder alone.
    has_class = type(config) in import_from("MODEL_FOR_TEXT_ENCODING_MAPPING")
    if config.is_encoder_decoder and not has_class:
        reason = f"describes an encoder-decoder ({config.model_type}), whose encoder cannot be loaded alone"
        raise UnreadableError(folder / "config.json", reason, "use an encoder, or a T5-family model")
    name = "AutoModelForMaskedLM" if with_head else "AutoModelForTextEncoding" if has_class else "AutoModel"
    model, missing = _read(import_from(name), folder, config, dtype, options)
    # Token embeddings do not depend on the pooler of BERT, which many checkpoints lack.
    _refuse_missing(folder, [name for name in missing if not name.startswith("pooler.")])
    return model


def with_new_head(network: Any) -> PreTrainedModel:
    """A masked language model of a backbone and a new head: the identity, a norm and the table of token embeddings."""
    with silence(), torch.random.fork_rng(devices=[]):
        model: Any = import_from("AutoModelForMaskedLM").from_config(network.config).to(network.device, network.dtype)
    setattr(model, model.base_model_prefix, network)
    model.tie_weights()
    for part in {*model.modules()} - {*network.modules(), model.get_output_embeddings()}:
        if isinstance(part, torch.nn.Linear):
            torch.nn.init.eye_(part.weight)
    return model.eval()


def rebuild_bert(values: dict[str, Any], weights: dict[str, Tensor], dtype: torch.dtype) -> PreTrainedModel:
    """The BERT of ``load_network``, from the values of its ``config.json`` and weights in memory."""
    # The random state belongs to the caller, who may have set a seed after loading.
    with silence(), torch.random.fork_rng(devices=[]):
        config, kind = import_from("BertConfig").from_dict(values), import_from("BertModel")
        model: PreTrainedModel = kind.from_pretrained(None, config=config, state_dict=weights, dtype=dtype)
        return model.eval()


def load_classifier(
    folder: Path, config: PretrainedConfig, dtype: torch.dtype, options: Mapping[str, Any], fresh: bool
) -> tuple[PreTrainedModel, list[str]]:
    """The transformer in ``folder`` with a head for sequence classification, and the names of new, random weights.

    Args:
        folder: Folder of the model.
        config: Configuration; ``num_labels`` is the number of scores.
        dtype: Dtype of the weights.
        options: As in ``load_network``.
        fresh: Whether to create a new head with random weights; otherwise the folder has to contain one.

    Raises:
        ValueError: If a file is damaged, weights are missing, or the folder contains a head although a new one is
            requested.
    """
    path = folder / "config.json"
    has_class = type(config) in import_from("MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING")
    if config.is_encoder_decoder or not has_class:
        reason = f"describes a model ({config.model_type}) that scores no pairs in one pass"
        raise UnreadableError(path, reason, "use an encoder such as BERT")
    model, missing = _read(import_from("AutoModelForSequenceClassification"), folder, config, dtype, options)
    if not fresh:
        _refuse_missing(folder, missing)
        return model, []
    backbone = f"{model.base_model_prefix}."
    _refuse_missing(folder, [name for name in missing if name.startswith(backbone) and ".pooler." not in name])
    head = [name for name, _ in model.named_parameters() if not name.startswith(backbone)]
    if not set(head) & set(missing):  # Parts of a head may come from pretraining, as in ModernBERT.
        kind = (config.architectures or ["nothing"])[0]
        reason = f"names {kind}, and the weights hold {head[0]}, of a head made for something else"
        remedy = "use the backbone alone; or, if the head does score pairs, name its class under architectures"
        raise UnreadableError(path, reason, remedy)
    return model, missing


def _read(
    kind: Any, folder: Path, config: PretrainedConfig, dtype: torch.dtype, options: Mapping[str, Any]
) -> tuple[PreTrainedModel, list[str]]:
    """A model of a class, in eval mode, and the names of missing weights."""
    if (path := folder / "adapter_config.json").exists():  # transformers would read the weights of another folder.
        reason = "describes an adapter, where a whole model is expected"
        raise UnreadableError(path, reason, "merge the adapter into its model, save that, and load it")
    header = read_header(folder)
    header.check_dtypes()
    weights = header.path
    try:
        with silence(), within(header, folder / "config.json"):
            model, report = kind.from_pretrained(
                folder,
                config=config,
                dtype=dtype,
                use_safetensors="safetensors" in weights.name,
                ignore_mismatched_sizes=True,  # The report names the weights, the error does not.
                output_loading_info=True,
                **_LOCAL,
                **options,
            )
    except UnreadableError:
        raise
    except Exception as error:
        raise load_error(folder, ["config.json", weights.name], error) from error
    for name, shape, expected in sorted(report["mismatched_keys"]):
        reason = f"gives {name} the shape {tuple(shape)}, where config.json asks for {tuple(expected)}"
        raise UnreadableError(weights, reason)
    warn_of_unused(weights, report["unexpected_keys"], model, model.base_model_prefix)
    return model.eval(), sorted(report["missing_keys"])


def _refuse_missing(folder: Path, missing: list[str]) -> None:
    if missing:
        reason = f"lacks {len(missing)} of the weights that config.json asks for, such as {missing[0]}"
        raise UnreadableError(weights_file(folder), reason)


def load_tokenizer(folder: Path, options: dict[str, Any]) -> PreTrainedTokenizerBase:
    """The tokenizer in ``folder``, without the truncation and padding of its file.

    If transformers builds one that reads texts otherwise than tokenizer.json, it is that of the file. Its
    ``sbert_rebuilt`` is the other one, and its ``sbert_note`` says how they differ, for ``decide_tokenizers``.

    Args:
        folder: The folder.
        options: Arguments for transformers.
    """
    check_files(folder)
    settings = read_object(folder / "tokenizer_config.json", missing_ok=True)
    _refuse_other_files(settings, "fast_tokenizer_files", settings.path)
    if not isinstance(names := settings.get("model_input_names", []), list):  # transformers takes it as it is.
        raise settings.error(f"gives model_input_names={names!r} where a list is expected")
    pickled = [path for path in folder.glob("vocab*") if path.suffix in (".pkl", ".bin")]
    if pickled and not (folder / "tokenizer.json").exists():  # transformers would make a tokenizer without words.
        reason = "is a pickled vocabulary, which can run code and is not read"
        raise UnreadableError(pickled[0], reason, "save the tokenizer as tokenizer.json beside it")
    for path in (folder / "tokenizer.json", folder / "vocab.json"):
        if path.exists():
            check_ids(path)
    try:
        with silence():
            kind = import_from("AutoTokenizer")
            tokenizer = kind.from_pretrained(folder, **_LOCAL, **options)
            if tokenizer and tokenizer.is_fast and type(tokenizer).__name__ not in AS_IN_FILE:
                tokenizer = _as_in_file(tokenizer, folder / "tokenizer.json", {**settings, **options}, options)
    except BaseException as error:
        if not is_failure(error):
            raise
        raise load_error(folder, TOKENIZER_FILES, error) from error
    if tokenizer is None or not len(tokenizer):
        raise UnreadableError(folder, f"holds no tokenizer ({', '.join(TOKENIZER_FILES[:2])})")
    if tokenizer.is_fast:
        tokenizer.backend_tokenizer.no_truncation()
        tokenizer.backend_tokenizer.no_padding()
    return tokenizer


def decide_tokenizers(model: Any, error: Callable[[], float] | None = None) -> None:
    """Warn of each tokenizer of a model that transformers builds otherwise than its file, which is used.

    Args:
        model: The model.
        error: The error of the model's reference vectors, if it has some: if it is smaller with the tokenizer of
            transformers, that one is used.
    """
    for module in model.modules():
        taken = vars(module).get("_tokenizer", vars(module).get("tokenizer"))
        if not hasattr(taken, "sbert_rebuilt"):
            continue
        built = vars(taken).pop("sbert_rebuilt")
        if error is not None:
            of_file = error()
            module.tokenizer = built
            if error() >= of_file:
                module.tokenizer = taken
        warn(module.tokenizer.sbert_note)


def _as_in_file(built: Any, path: Path, stated: dict[str, Any], options: dict[str, Any]) -> Any:
    """The tokenizer that transformers has built; if tokenizer.json gives other tokens, the one of the file.

    What the settings or the caller state goes before the file, as it did when transformers took the file as it is.
    """
    backend, start = built.backend_tokenizer, '"added_tokens"'  # Truncation and padding come before, and are the same.
    content = path.read_text("utf-8") if path.exists() else ""
    if content.partition(start)[2] in ("", backend.to_str(pretty=True).partition(start)[2]):
        return built
    file = import_from("Tokenizer", "tokenizers").from_str(content)
    for name, step in BERT_STEPS.items():
        if name in stated and type(file.normalizer).__name__ == "BertNormalizer":
            setattr(file.normalizer, step, stated[name])
    if "add_prefix_space" in stated and type(file.pre_tokenizer).__name__ == "ByteLevel":
        file.pre_tokenizer.add_prefix_space = stated["add_prefix_space"]
    if not {stated.get("add_bos_token"), stated.get("add_eos_token")} <= {None}:
        file.post_processor = backend.post_processor
    for reader in (backend, file):
        reader.no_padding()
        reader.no_truncation()
    rows = zip(_PROBES, backend.encode_batch(_PROBES), file.encode_batch(_PROBES), strict=True)
    changed = [row for row in rows if row[1].ids != row[2].ids]
    if not changed:
        return built
    text, theirs, ours = changed[0]
    kind, names = import_from("PreTrainedTokenizerFast"), {"model_input_names": built.model_input_names}
    options = {**built.special_tokens_map, **names, **options}
    taken = kind.from_pretrained(path.parent, tokenizer_object=file, **_LOCAL, **options)
    differs = f"{type(built).__name__} of transformers reads {text!r} as {theirs.tokens!r:.200}"
    differs += f", and {path} as {ours.tokens!r:.200}"
    call = f".from_pretrained({str(path.parent)!r})"
    taken.sbert_rebuilt = built
    taken.sbert_note = f"{differs}; the file is used; for the other, set model.tokenizer = AutoTokenizer{call}"
    fits = "the reference vectors fit the first, which is used; for the file, set model.tokenizer ="
    built.sbert_note = f"{differs}; {fits} PreTrainedTokenizerFast{call}"
    return taken


# ----------------------------------------------------- models whose folders name code that transformers has by now

# The names of Nomic AI's code, and those of transformers.
_NOMIC = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "layer_norm_epsilon": "layer_norm_eps",
    "max_trained_positions": "max_position_embeddings",
    "rotary_emb_base": "rope_theta",
}
# What the code of a folder could do and transformers cannot: it would compute something else without a word.
_ONLY: dict[str, dict[str, tuple[Any, ...]]] = {
    "nomic_bert": {
        "activation_function": ("swiglu",),
        "prenorm": (False,),
        "qkv_proj_bias": (False,),
        "rotary_emb_fraction": (1.0,),
        "rotary_emb_interleaved": (False,),
        "rotary_scaling_factor": (None,),
    },
    "gte": {"position_embedding_type": ("rope",), "layer_norm_type": ("layer_norm",), "logn_attention_scale": (False,)},
    **{name: {"position_embedding_type": ("absolute",)} for name in ("bert", "roberta", "xlm-roberta", "electra")},
}


def _in_terms_of_transformers(values: dict[str, Any], path: Path) -> dict[str, Any]:
    """The values of the ``config.json`` at a path as transformers has them; the same values for most models.

    Raises:
        UnreadableError: If the model needs code from its folder.
    """
    kind = "gte" if values.get("model_type") == "new" and "auto_map" in values else values.get("model_type")
    for key, supported in _ONLY.get(str(kind), {}).items():
        if values.get(key, supported[0]) not in supported:
            reason = f"gives {key}={values[key]!r}, which needs code from its folder, and that is never run"
            raise UnreadableError(path, reason, "use another model; the guide of sbert.integrations lists some")
    if kind == "nomic_bert":
        return {**{_NOMIC[key]: values[key] for key in _NOMIC if values.get(key) is not None}, **values}
    return _gte(values) if kind == "gte" else values


def _gte(values: dict[str, Any]) -> dict[str, Any]:
    """NTK scaling by a factor f, which raises the base to f * base and divides frequencies by f^(2 / head_dim)."""
    result = {**values, "model_type": "gte"}
    scaling = values.get("rope_scaling") or {}
    if scaling.get("type") == "ntk":
        factor, heads = scaling["factor"], values["num_attention_heads"]
        result["rope_theta"] = float(values["rope_theta"]) * factor
        result["rope_scaling"] = {"rope_type": "linear", "factor": factor ** (2 * heads / values["hidden_size"])}
    return result
