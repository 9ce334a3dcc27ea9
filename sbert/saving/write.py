"""Write model folders in the oldest format of sentence-transformers, which all tools in the field can read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import nn

from sbert.modules import Transformer
from sbert.saving.codecs import codec_of, type_name
from sbert.saving.format import MODULES, SETTINGS, Settings
from sbert.storage.files import write_json


def write_folder(folder: Path, modules: Sequence[nn.Module], output_dims: Sequence[int], settings: Settings) -> None:
    """Write the modules and settings of an encoder to an empty folder.

    Args:
        folder: The folder, which must exist.
        modules: The modules of the encoder.
        output_dims: Dimension of the output of each module.
        settings: Prompts, similarity and truncation.
    """
    entries, input_dim = [], 0
    for index, (module, output_dim) in enumerate(zip(modules, output_dims, strict=True)):
        kind = type(module)
        path = "" if kind is Transformer and index == 0 else f"{index}_{kind.__name__}"
        (folder / path).mkdir(exist_ok=True)
        codec_of(kind).write(module, folder / path, input_dim)
        entries.append({"idx": index, "name": str(index), "path": path, "type": type_name(kind)})
        input_dim = output_dim
    write_json(folder / MODULES, entries)
    write_json(
        folder / SETTINGS,
        {
            # A low version, so that no version of sentence-transformers warns that the model is newer.
            "__version__": {"sentence_transformers": "2.3.0"},
            "model_type": "SentenceTransformer",
            "prompts": settings.prompts,
            "default_prompt_name": settings.default_prompt_name,
            "similarity_fn_name": settings.similarity_fn_name,
            **({} if settings.truncate_dim is None else {"truncate_dim": settings.truncate_dim}),
        },
    )
