"""Write model folders in the oldest format of sentence-transformers, which all tools in the field can read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sbert.modules import Transformer
from sbert.saving import verification
from sbert.saving.codecs import find_codec, type_name
from sbert.saving.format import MODULES, REFERENCE, SETTINGS
from sbert.saving.model_card import encoder_card
from sbert.storage.files import write_json


def write_folder(
    folder: Path, model: Any, output_dims: Sequence[int], name: str, reference: verification.Reference
) -> None:
    """Write the modules, settings, reference vectors and card of an encoder to an empty folder.

    Args:
        folder: The folder, which must exist.
        model: The encoder.
        output_dims: Dimension of the output of each module.
        name: Name of the model, for its card.
        reference: Texts with their vectors, for ``verify``.
    """
    entries, input_dim = [], 0
    for index, (module, output_dim) in enumerate(zip(model, output_dims, strict=True)):
        kind = type(module)
        path = "" if kind is Transformer and index == 0 else f"{index}_{kind.__name__}"
        (folder / path).mkdir(exist_ok=True)
        find_codec(kind).write(module, folder / path, input_dim)
        entries.append({"idx": index, "name": str(index), "path": path, "type": type_name(kind)})
        input_dim = output_dim
    write_json(folder / MODULES, entries)
    settings = {
        # A low version, so that no version of sentence-transformers warns that the model is newer.
        "__version__": {"sentence_transformers": "2.3.0"},
        "model_type": "SentenceTransformer",
        "prompts": model.prompts,
        "default_prompt_name": model.default_prompt_name,
        "similarity_fn_name": model.similarity_fn_name,
        **({} if model.truncate_dim is None else {"truncate_dim": model.truncate_dim}),
    }
    write_json(folder / SETTINGS, settings)
    verification.write(reference, folder / REFERENCE)
    (folder / "README.md").write_text(encoder_card(name, model), encoding="utf-8")
