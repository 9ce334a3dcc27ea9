"""How each module is written to a folder and read from one: one codec per class, in one table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from torch import nn

from sbert.modules import LateInteraction, Pooling, Router, Transformer
from sbert.modules.registry import REGISTERED
from sbert.saving.codecs.codec import Arguments, Codec, ReadOptions
from sbert.saving.codecs.layer_codecs import LAYER_CODECS, make_codec, user_settings
from sbert.saving.codecs.transformer_codec import MASKED_LM_CODEC, TRANSFORMER_CODEC
from sbert.saving.format import OURS, PYLATE, ROUTER_CONFIG, THEIRS
from sbert.saving.late_interaction_folder import read_mask
from sbert.storage.files import JsonObject, UnreadableError, inside, read_object, reading, write_json

__all__ = ["Arguments", "Codec", "ReadOptions", "find_class", "find_codec", "type_name"]


def _read_router(folder: Path, options: ReadOptions) -> Router:
    """A Router, whose modules have folders of their own; before version 5, it was called Asym."""
    config = read_object(folder / ROUTER_CONFIG, missing_ok=True) or read_object(folder / "config.json")
    modules: dict[str, nn.Module] = {}
    for name, kind_name in config.require("types", dict).items():
        kind = find_class(str(kind_name), config.path)
        if kind is Router:
            raise config.error("has a Router as a module of a Router", "use another model")
        modules[name] = find_codec(kind).read(inside(folder, name, config.path), options)
    structure = config.require("structure", dict)
    parameters = JsonObject(config.field("parameters", dict, {}), config.path)
    if parameters.get("route_mappings"):
        raise config.error("gives route_mappings, which are not supported", "use routes that are called as the tasks")
    first = next(iter(structure), None) if parameters.field("allow_empty_key", bool, True) else None
    default = parameters.field("default_route", str, None) or first
    with reading(config.path, "the routes of a Router"):
        return Router({route: [modules[name] for name in names] for route, names in structure.items()}, default)


def _write_router(router: Router, folder: Path, input_dims: Mapping[nn.Module, int]) -> None:
    names: dict[nn.Module, str] = {}  # A module of several routes is written once.
    structure: dict[str, list[str]] = {}
    for route, chain in router.routes.items():
        for number, module in enumerate(chain):
            if module not in names:
                names[module] = f"{route}_{number}_{type(module).__name__}"
                (folder / names[module]).mkdir()
                find_codec(type(module)).write(module, folder / names[module], input_dims)
        structure[route] = [names[module] for module in chain]
    types = {name: type_name(module) for module, name in names.items()}
    parameters = {"default_route": router.default_route, "allow_empty_key": router.default_route is not None}
    write_json(folder / ROUTER_CONFIG, {"types": types, "structure": structure, "parameters": parameters})


class _MaskedLM(Transformer):
    """Stands for a transformer with a language model's head, as modules.json names its class."""


# The names of modules of sparse encoders that have others here.
_SPARSE = {"Transformer": "MLMTransformer", "Pooling": "SpladePooling"}
_BUILT_IN: dict[type[nn.Module], Codec] = {
    Transformer: TRANSFORMER_CODEC,
    _MaskedLM: MASKED_LM_CODEC,
    Router: Codec(_read_router, _write_router),
    LateInteraction: Codec(read_mask, lambda *_: None),
    **LAYER_CODECS,
}
_BY_NAME: dict[str, type[nn.Module]] = {"Asym": Router, **{kind.__name__: kind for kind in _BUILT_IN}}
_BY_NAME |= {"SpladePooling": Pooling, "MLMTransformer": _BY_NAME.pop("_MaskedLM"), "MultiVectorMask": LateInteraction}


def find_codec(kind: type[nn.Module]) -> Codec:
    """The codec of a class of modules: a built-in one, or one that a user has defined."""
    return _BUILT_IN.get(kind) or make_codec(kind, dict, user_settings)


def check_savable(modules: Iterable[nn.Module]) -> None:
    """Raise a ValueError if one of the modules is of a class that a user has defined, and cannot be saved."""
    for module in modules:
        if type(module) not in _BUILT_IN:
            user_settings(module, None)


def type_name(module: nn.Module) -> str:
    """The name of a module's class in modules.json."""
    kind, name = type(module), type(module).__name__
    if getattr(module, "has_head", False) or getattr(module, "is_sparse", False):
        return f"{THEIRS}sparse_encoder.models.{_SPARSE.get(name, name)}"
    return f"{THEIRS}models.{name}" if kind in _BUILT_IN else f"{OURS}{name}"


def find_class(name: str, path: Path) -> type[nn.Module]:
    """The class of a name in modules.json.

    Args:
        name: The full name of a class of sentence-transformers or of this library.
        path: The file that contains the name, for errors.

    Raises:
        ValueError: If the class is neither built in nor registered.
    """
    short, is_ours = name.rpartition(".")[2], name.startswith(OURS)
    if is_ours and short in REGISTERED:
        return REGISTERED[short]
    if short in _BY_NAME and (is_ours or name.startswith((THEIRS, PYLATE))):
        return _BY_NAME[short]
    remedy = f"import the code that defines {short}, with @register_module before its class"
    known = ", ".join(sorted({*_BY_NAME, *REGISTERED}))
    reason = f"names the module type {name!r}, which is not one of {known}"
    raise UnreadableError(path, reason, remedy if is_ours else "use another model")
