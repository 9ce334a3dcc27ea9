"""API pages of the site: the public names of a package, with signatures as their source writes them."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from html import escape
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import nn

if TYPE_CHECKING:
    from pdoc import doc

# What methods return and users meet, though no package lists it.
RETURNED = {
    "sbert.pipeline": ["pool.Pool", "pool.WorkerError", "batcher.Batcher", "batcher.Metrics", "batcher.QueueFullError"],
    "sbert.saving": ["verification.Verification"],
}
# What torch says of its own modules says nothing of ours.
_INHERITED = {inspect.getdoc(member) for member in vars(nn.Module).values()}


class Entry(NamedTuple):
    """A public name, or a method of one.

    Args:
        name: Such as ``Index.search``, from the package on.
        home: Where it is defined: ``sbert.search.index.index.Index.search``.
        kind: ``class``, ``function`` or ``attribute``.
        signature: As plain Python; of a class, that of its constructor.
        docstring: Markdown.
        scope: The names to which the annotations of the signature refer.
        bases: Of a class: its bases in the library.
    """

    name: str
    home: str
    kind: str
    signature: str
    docstring: str
    scope: dict[str, Any]
    bases: tuple[str, ...] = ()


def public_names(package: str) -> dict[str, str]:
    """The public names of a package, each with the module to ask for it."""
    module = import_module(package)
    if package in RETURNED:
        return {path.partition(".")[2]: f"{package}.{path.partition('.')[0]}" for path in RETURNED[package]}
    defined = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == package]
    names = getattr(module, "__all__", None) or [name for name in defined if not name.startswith("_")]
    return dict.fromkeys(names, package)


def entries(package: str) -> Iterator[Entry]:
    """All public names of a package, a class before its methods; what several classes inherit stands at the first."""
    from pdoc import doc

    inherited: set[str] = set()
    for name, module in public_names(package).items():
        value = getattr(import_module(module), name)
        home = f"{getattr(value, '__module__', module)}.{getattr(value, '__qualname__', name)}"
        scope = vars(sys.modules[getattr(value, "__module__", module)])
        if inspect.isclass(value):
            described = doc.Class(value.__module__, value.__qualname__, value, (value.__module__, value.__qualname__))
            yield from _class(name, home, described, inherited)
        elif inspect.isfunction(value):
            yield Entry(name, home, "function", write_signature(name, value), _docstring(value), scope)
        else:
            signature = f"{name} = {_value(value)}"
            yield Entry(name, f"{module}.{name}", "attribute", signature, _comment(import_module(module), name), scope)


def _class(name: str, home: str, described: doc.Class, inherited: set[str]) -> Iterator[Entry]:
    value: Any = described.obj
    constructor = inspect.getdoc(value.__init__) if "__init__" in vars(value) else ""
    text = "\n\n".join(filter(None, [_docstring(value), constructor if constructor not in _INHERITED else ""]))
    bases = tuple(f"{base.__module__}.{base.__qualname__}" for base in value.__bases__)
    yield Entry(
        name, home, "class", write_signature(name, value, "class "), text, vars(sys.modules[value.__module__]), bases
    )
    members = [member for member in described.members.values() if _is_public(member)]
    for member in sorted(members, key=lambda member: member.taken_from[0] != value.__module__):
        if member.taken_from[0] != value.__module__:
            if ".".join(member.taken_from) in inherited:
                continue
            inherited.add(".".join(member.taken_from))
        scope = vars(sys.modules[member.taken_from[0]])
        function = inspect.getattr_static(value, member.name, None)
        if isinstance(function, property):
            result = _annotation(getattr(function.fget, "__annotations__", {}).get("return", ""))
            yield _member(name, member, f"{member.name}: {result}" if result else member.name, scope)
        elif callable(getattr(value, member.name, None)):
            bound = not isinstance(function, staticmethod)
            yield _member(name, member, write_signature(member.name, getattr(value, member.name), bound=bound), scope)


def _member(owner: str, member: doc.Doc[Any], signature: str, scope: dict[str, Any]) -> Entry:
    kind = "attribute" if member.kind == "variable" else "function"
    return Entry(f"{owner}.{member.name}", ".".join(member.taken_from), kind, signature, member.docstring, scope)


def _is_public(member: doc.Doc[Any]) -> bool:
    explained = member.docstring and member.docstring not in _INHERITED and member.kind in {"function", "variable"}
    return bool(
        explained and not member.name.startswith(("_", "extra_repr")) and member.taken_from[0].startswith("sbert.")
    )


def _docstring(value: object) -> str:
    text = inspect.getdoc(value) or ""
    # Of a NamedTuple or a dataclass without a docstring, Python writes the signature.
    return "" if text in _INHERITED or text.startswith(f"{getattr(value, '__name__', '')}(") else text


def _comment(module: ModuleType, name: str) -> str:
    """The comment above a constant, where it is defined."""
    source = inspect.getsource(module)
    if imported := re.search(rf"^from (sbert[\w.]*) import [^\n]*\b{name}\b", source, re.MULTILINE):
        return _comment(import_module(imported[1]), name)
    match = re.search(rf"((?:^#[^\n]*\n)+){name}\b[^\n]*=", source, re.MULTILINE)
    return " ".join(line.lstrip("# ") for line in match[1].splitlines()) if match else ""


def _annotation(value: object) -> str:
    value = getattr(value, "__forward_arg__", value)
    if isinstance(value, str):
        return ast.unparse(ast.parse(value.strip(), mode="eval")) if value else ""
    return inspect.formatannotation(value)


def _value(value: object) -> str:
    if inspect.isfunction(value) or inspect.isclass(value):
        return str(value.__name__)
    text = f'"{value}"' if isinstance(value, str) else repr(value)
    return "..." if len(text) > 60 or text.startswith("<") else text


def _parameters(signature: inspect.Signature) -> Iterator[str]:
    star = slash = False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            star = True
        elif parameter.kind is parameter.KEYWORD_ONLY and not star:
            star = True
            yield "*"
        if slash and parameter.kind is not parameter.POSITIONAL_ONLY:
            yield "/"
        slash = parameter.kind is parameter.POSITIONAL_ONLY
        sign = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        text = sign + parameter.name
        if parameter.annotation is not parameter.empty:
            text += f": {_annotation(parameter.annotation)}"
        if parameter.default is not parameter.empty:
            text += f" = {_value(parameter.default)}" if ":" in text else f"={_value(parameter.default)}"
        yield text
    if slash:
        yield "/"


def write_signature(name: str, value: Callable[..., object], prefix: str = "", bound: bool = False) -> str:
    """A signature in one line, or with one parameter per line."""
    try:
        signature = inspect.signature(value)
    except ValueError:  # Of a class that is written in C.
        return prefix + name
    if getattr(value, "_is_protocol", False) or list(signature.parameters) == ["args", "kwargs"]:
        return prefix + name
    parameters = list(signature.parameters.values())
    if bound and parameters and parameters[0].name in {"self", "cls"}:
        signature = signature.replace(parameters=parameters[1:])
    result = _annotation(signature.return_annotation) if signature.return_annotation is not signature.empty else ""
    arrow = f" -> {result}" if result and not inspect.isclass(value) else ""
    listed = list(_parameters(signature))
    line = f"{prefix}{name}({', '.join(listed)}){arrow}"
    if len(line) <= 80 or not listed:
        return line
    return "\n".join([f"{prefix}{name}(", *(f"    {parameter}," for parameter in listed), f"){arrow}"])


@cache
def _aliases(module: str) -> dict[str, str]:
    """The types that a module gives a name, as its source writes them."""
    found = {}
    for node in ast.parse(inspect.getsource(sys.modules[module])).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        # A call makes a variable for types, and no alias.
        if (
            isinstance(target, ast.Name)
            and re.fullmatch(r"[A-Z][a-z]\w*", target.id)
            and not isinstance(value, ast.Call)
        ):
            found[target.id] = ast.unparse(value)
    return found


def find_alias(name: str, scope: dict[str, Any]) -> tuple[str, str] | None:
    """The module that defines a name of a type, and the type; None for names that are classes, or not the library's."""
    module = str(scope["__name__"])
    while name not in _aliases(module):
        imported = _imports(module).get(name, "")
        if not imported.startswith("sbert"):
            return None
        module = import_module(imported).__name__
    return module, _aliases(module)[name]


def find_imported(name: str, scope: dict[str, Any]) -> object:
    """What a name stands for that a module imports for types alone; None if it is not the library's."""
    imported = _imports(str(scope["__name__"])).get(name, "")
    return getattr(import_module(imported), name, None) if imported.startswith("sbert") else None


@cache
def _imports(module: str) -> dict[str, str]:
    """The modules from which a module imports its names, those for types alone among them."""
    nodes = ast.walk(ast.parse(inspect.getsource(sys.modules[module])))
    return {
        alias.asname or alias.name: node.module or ""
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def highlight(signature: str, link: Callable[[str], str | None]) -> str:
    """A signature in colours, with links to the types that the site explains."""
    from pygments import highlight as colour
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    shown = colour(signature, PythonLexer(), HtmlFormatter(nowrap=True)).rstrip()

    def replace(match: re.Match[str]) -> str:
        target = link(match[2])
        return f'{match[1]}<a href="{escape(target)}">{match[2]}</a><' if target else match[0]

    return re.sub(r'(<span class="n[a-z]?">)([A-Z]\w+)<', replace, shown)
