"""The Hugging Face hub: find or download the folder of a model, and upload one."""

from __future__ import annotations

import os
import warnings
from functools import partial
from pathlib import Path

# The files that describe a model, and its weights in safetensors, the format that cannot contain code.
_WANTED = ["*.json", "*.txt", "*.model", "*.jinja", "README.md", "*.safetensors"]
# The model that comes with the library: its name and its folder.
MINI, _MINI_FOLDER = "sbert-mini", Path(__file__).parent.parent / "default_model"
# Number of characters of a name that an error shows.
_NAME = 60
_WEIGHTLESS = ("Pooling", "Normalize", "Dropout")
_OTHER_RUNTIMES = ["onnx/*", "openvino/*", "coreml/*", "*.onnx", "flax_model*", "tf_model*"]


def resolve(
    name: str | os.PathLike[str],
    *,
    organisation: str | None = None,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_folder: str | None = None,
    local_files_only: bool = False,
    file: str | None = None,
) -> Path:
    """The local folder of a model, which is downloaded from the Hugging Face hub if necessary.

    Args:
        name: A folder; a name on the hub; or ``"sbert-mini"`` for the model that comes with the library, even if there
            is a folder of that name.
        organisation: Organisation on the hub that is tried first, for a name without one.
        revision: Branch, tag or commit on the hub.
        token: Access token, for private models.
        cache_folder: Folder for downloads. Default: the cache of the hub's client.
        local_files_only: Whether to use only what has been downloaded before.
        file: What is downloaded beside the files of the model, for another runtime.

    Raises:
        FileNotFoundError: If there is neither such a folder nor such a model.
    """
    path = Path(name).expanduser()
    if name == MINI:  # The default model must not depend on the working directory.
        if path.is_dir():
            warnings.warn(f"{MINI} is the bundled model; pass ./{MINI} for the folder", stacklevel=2)
        return _MINI_FOLDER
    if path.is_dir():
        return path
    text = os.fspath(name)
    is_path = text.startswith((".", "/", "~")) or "\\" in text or text.count("/") > 1 or text.endswith("/")
    if not isinstance(name, str) or is_path or path.exists():
        what = "is a file" if path.exists() else "does not exist"
        raise FileNotFoundError(f"{path} {what}; pass a model's folder or its name on the hub")

    names = [f"{organisation}/{text}"] if organisation and "/" not in text else []
    failures: list[Exception] = []
    for candidate in [*names, text]:
        try:
            return _download(candidate, local_files_only, file, revision=revision, token=token, cache_dir=cache_folder)
        except Exception as error:  # Errors of the hub's client and of its HTTP library, which differ by version.
            failures.append(error)
    what = text if revision is None else f"{text} at revision {revision}"
    is_hubs = type(failures[-1]).__module__.startswith("huggingface_hub")  # Of such errors, the message says all.
    raise FileNotFoundError(_remedy(what, failures, local_files_only)) from None if is_hubs else failures[-1]


def _remedy(name: str, failures: list[Exception], local: bool) -> str:
    """What to do about a model that cannot be downloaded, and why. The remedy comes first: terminals truncate lines."""
    from huggingface_hub import constants, errors

    model = repr(name if len(name) <= _NAME else f"{name[:_NAME]}…")
    absent = (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.HFValidationError)
    others = [error for error in failures if not isinstance(error, absent)]
    if any(isinstance(error, errors.GatedRepoError) for error in failures):
        return f"accept the terms of {model} on its page and pass your token: the hub requires both"
    if not others:
        return f"check the name and, for a private model, the token: {model} is neither a folder nor a model on the hub"
    # The hub's client wraps the original error.
    remedy, reason = "check the connection", type(others[-1].__cause__ or others[-1]).__name__
    offline = isinstance(others[-1], (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled))
    if offline and (local or constants.HF_HUB_OFFLINE):
        setting = "local_files_only" if local else "HF_HUB_OFFLINE"
        remedy, reason = f"unset {setting}", f"{setting} is set"
    tail = f"{model} is not in the cache, and the hub cannot be reached ({reason})"
    return f"{remedy}, or pass a model's folder: {tail}"


def _download(name: str, local_files_only: bool, file: str | None, **options: str | bool | None) -> Path:
    """The folder of a snapshot; weights that are pickled are fetched for a module without others."""
    from huggingface_hub import snapshot_download

    options = {**options, "local_files_only": local_files_only}
    fetch = partial(snapshot_download, name, ignore_patterns=None if file else _OTHER_RUNTIMES, **options)
    folder = Path(fetch(allow_patterns=[*_WANTED, *([f"*{file.removesuffix('xml')}*"] if file else [])]))
    modules = [path for path in folder.iterdir() if path.is_dir() and not path.name.endswith(_WEIGHTLESS)]
    pickled = [
        f"{path.relative_to(folder)}/pytorch_model*.bin".removeprefix("./")
        for path in (folder, *modules)
        if not any(path.glob("*.safetensors*"))
    ]
    return Path(fetch(allow_patterns=[*_WANTED, *pickled])) if pickled and not local_files_only else folder


def upload(
    folder: Path, repository: str, token: str | bool | None, private: bool | None, message: str, revision: str | None
) -> str:
    """Upload a folder to a repository of the hub, which is created if necessary; return the URL of the commit."""
    from huggingface_hub import HfApi

    api = HfApi(token=token)
    api.create_repo(repository, private=private, exist_ok=True)
    if revision is not None:
        api.create_branch(repository, branch=revision, exist_ok=True)
    commit = api.upload_folder(repo_id=repository, folder_path=folder, commit_message=message, revision=revision)
    return str(commit.commit_url)
