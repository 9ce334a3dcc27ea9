"""Router: several chains of modules, of which a text takes one, by its role."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn

from sbert.inputs.arguments import check_choice, known_arguments


class Router(nn.Module):
    """Several chains of modules, the routes, of which a text takes one: that of its role, ``query`` or ``document``.

    ``encode_query`` and ``encode_document`` take the routes of these names, and ``encode(task=)`` any. The model's
    ``route(name)`` is the encoder of one route. All routes have to give vectors of one dimension.

    Args:
        routes: The modules of each route, by its name; an encoder stands for its modules.
        default_route: The route of ``encode`` without a role. Default: none, so that such a call is an error.

    Raises:
        ValueError: If a route has no modules, or none has the name of the default route.

    References:
        The folder format is that of ``Router`` in sentence-transformers 5 and 6.
        https://sbert.net/docs/package_reference/sentence_transformer/models.html

    Example:
        >>> from sbert import Normalize, Pooling, Router, SentenceEncoder, Transformer
        >>> first, both = [Transformer("sbert-mini"), Pooling("cls")], [Transformer("sbert-mini"), Pooling("mean")]
        >>> model = SentenceEncoder(Router({"query": first, "document": both}), Normalize())
        >>> model.encode_query("Who sleeps?").shape
        (384,)
        >>> model.route("query")[1].modes
        ('cls',)
    """

    @known_arguments
    def __init__(self, routes: Mapping[str, Iterable[nn.Module]], default_route: str | None = None) -> None:
        super().__init__()
        self.routes: Any = nn.ModuleDict({name: nn.Sequential(*modules) for name, modules in routes.items()})
        if not routes or not all(chain._modules for chain in self.routes.values()):
            raise ValueError("a route has no modules; pass routes={'query': [...], 'document': [...]}")
        if wrong := [name for name in routes if not name.replace("-", "_").isidentifier()]:
            raise ValueError(f"the route {wrong[0]!r} is not a name; use letters, digits, _ and -")
        if default_route is not None:
            check_choice("default_route", default_route, list(self.routes))
        self.default_route: str | None = default_route

    def find_route(self, name: str | None = None) -> str:
        """The name of a route; by default, of the default route.

        Raises:
            ValueError: If there is no such route, or no default route.
        """
        name = self.default_route if name is None else name
        if name is None or name not in self.routes:
            reason = "there is no default route" if name is None else f"there is no route {name!r}"
            raise ValueError(
                f"{reason}, and the model has {', '.join(map(repr, self.routes))}; call encode_query or"
                " encode_document, or pass task= or route="
            )
        return name

    def forward(self, value: Any) -> Any:
        return self.routes[self.find_route()](value)
