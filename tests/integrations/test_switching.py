"""The page about migrating has every public name of sentence-transformers, and the names of ours in it exist."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from operator import attrgetter
from typing import Any

import pytest
from torch import nn
from torch.utils.data import DataLoader

import sbert
from sbert.integrations import switching
from sbert.integrations.sentence_transformers import training
from sbert.integrations.sentence_transformers.forms import CONVERT
from sbert.integrations.switching import COUNTERPARTS, OF_MODELS, PARAMETERS, TRAINERS, TRAINING, Counterpart
from sbert.training.training_run import rate_factor
from tests import pairs, small
from tests.integrations.names_tables import HEAD, PAGE, with_tables

pytestmark = pytest.mark.filterwarnings("ignore")  # The old names of modules warn.
peer = pytest.importorskip("sentence_transformers")

KINDS = ("same", "other name", "other form", "not here")
OUT_OF_SCOPE, OTHERS = "Out of scope", "Arguments of the other methods"
# The sections of modules, and where their names are there and here.
MODULES = {
    "util": (["util"], ["functional", "search"]),
    "losses": (["losses"], ["losses"]),
    "Training": (["", "sentence_transformer", "datasets", "base.sampler", "cross_encoder"], [""]),
    "readers": (["readers"], []),
    "evaluation": (["evaluation"], ["evaluation"]),
    "models": (["models"], ["modules"]),
    "CrossEncoder: losses": (["cross_encoder.losses"], ["losses"]),
    "CrossEncoder: evaluation": (["cross_encoder.evaluation"], []),
}
# Names that only the samplers' module has, and that users pass as strings.
INTERNAL = {f"{name}BatchSampler" for name in ("GroupByLabel", "NoDuplicates", "RoundRobin", "Proportional")}
TABLES: dict[str, list[Counterpart]] = {}
for _row in COUNTERPARTS:
    TABLES.setdefault(_row.section, []).append(_row)
SECTIONS = len(TABLES)
ARGUMENTS = TABLES.pop(OF_MODELS)
OF_TRAINING, OF_TRAINERS = TABLES.pop(TRAINING), TABLES.pop(TRAINERS)
# The paths of their modules; what each is here.
PATHS = TABLES.pop("Modules")
SKIPPED = [name for row in TABLES.pop(OUT_OF_SCOPE) for name in row.names]
ENCODE, SCORE = ("encode", "encode_query", "encode_document"), ("predict", "rank")


def parameters(function: Callable[..., Any]) -> set[str]:
    """The names of a function's arguments, without ``self``, ``*args`` and ``**kwargs``."""
    found = inspect.signature(inspect.unwrap(function)).parameters.values()
    return {each.name for each in found if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)} - {"self", "cls"}


def public(model: nn.Module) -> set[str]:
    """The attributes and methods of a model that are not torch's."""
    names = {*dir(type(model)), *vars(model)}
    return {name for name in names if not name.startswith("_") and not hasattr(nn.Module(), name)}


def method(owner: type, name: str) -> Callable[..., Any] | None:
    value = inspect.getattr_static(owner, name, None)
    value = getattr(value, "__func__", value)
    return value if callable(value) and not isinstance(value, type) else None


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The public names of the installed package, by the sections of the guide."""
    root = tmp_path_factory.mktemp("theirs")
    encoder = peer.SentenceTransformer(str(small.bert(root / "encoder")), device="cpu")
    scorer = peer.CrossEncoder(str(pairs.folder(root / "scorer")), device="cpu")
    found: dict[str, set[str]] = {OTHERS: set()}
    for name, model, main, label in (
        ("SentenceTransformer", encoder, ENCODE, "encode"),
        ("CrossEncoder", scorer, SCORE, "predict and rank"),
    ):
        kind = type(model)
        found[f"{name}: constructor"] = parameters(kind.__init__)
        found[f"{name}: {label}"] = set().union(*(parameters(getattr(kind, each)) for each in main))
        found[f"{name}: methods and attributes"] = public(model)
        others = [method(kind, each) for each in public(model) - set(main)]
        found[OTHERS].update(*(parameters(each) for each in others if each))
    for section, (modules, _) in MODULES.items():
        imported = [importlib.import_module(f"sentence_transformers.{module}".rstrip(".")) for module in modules]
        found[section] = {name for module in imported for name in module.__all__} - INTERNAL
    return found


def test_every_name_of_theirs_is_in_the_table_and_no_other(theirs: dict[str, set[str]]) -> None:
    assert set(TABLES) == set(theirs)
    for section, names in theirs.items():
        expected = sorted(name for name in names if not any(fnmatchcase(name, pattern) for pattern in SKIPPED))
        assert sorted(name for row in TABLES[section] for name in row.names) == expected, section
    everything = {name for names in theirs.values() for name in names}
    for path in ("base.model_card", "util.quantization"):
        everything |= {*vars(importlib.import_module(f"sentence_transformers.{path}"))}
    assert all(any(fnmatchcase(name, pattern) for name in everything) for pattern in SKIPPED)


def test_each_row_has_a_kind_and_what_is_not_the_same_is_explained() -> None:
    for row in (*(row for rows in TABLES.values() for row in rows), *OF_TRAINING, *OF_TRAINERS, *PATHS):
        assert row.names, row
        assert row.how in (*KINDS, "no effect"), row
        assert row.how == "same" or row.here, row
    assert all(row.here for row in ARGUMENTS if row.how in ("any", "null"))
    ours = {row.new_name for row in OF_TRAINING} - {None, "fit(show_progress_bar=...)"}
    assert len(ours) > 15
    assert ours <= parameters(sbert.TrainingConfig)


def owner(package: str, of: str) -> Any:
    """The class or function of a row of parameters."""
    path, _, name = of.rpartition(".")
    module = importlib.import_module(f"{package}.{path}" if path.islower() else package)
    return getattr(module if path.islower() else getattr(module, path), name)


@pytest.mark.parametrize("of", dict.fromkeys(each.section for each in PARAMETERS))
def test_parameters_are_theirs_in_their_order_with_their_defaults(of: str) -> None:
    ours, original = owner("sbert.integrations.sentence_transformers", of), owner("sentence_transformers", of)
    mine = inspect.signature(ours).parameters
    given = inspect.signature(inspect.unwrap(original)).parameters
    if {"args", "kwargs"} <= set(given):  # An older class, of which the signature says nothing.
        return
    flags = {name for name in mine if name.startswith("pooling_mode_")} | {"cache_dir"}  # Taken by decorators there.
    names = [name for name in given if name != "kwargs"]  # Also older arguments.
    in_order = [name for name in names if name in mine]
    if of != "models.Transformer":  # Older scripts pass max_seq_length by position.
        assert [name for name in mine if name in given] == in_order
    assert set(mine) - set(given) <= flags
    older = {each.older for each in PARAMETERS if each.section == of}
    assert set(names) - set(mine) - older == UNKNOWN.get(of, set())
    for name in set(mine) & set(given):
        assert (mine[name].default is inspect.Parameter.empty) == (given[name].default is inspect.Parameter.empty)
        default = given[name].default
        if isinstance(default, (str, int, float, tuple, list, type(None))) and mine[name].default is not None:
            assert mine[name].default == (list(default) if isinstance(default, tuple) else default), name


# Parameters of theirs that are unknown here: an error names those that are taken.
UNKNOWN = {
    "evaluation.TripletEvaluator": {"main_distance_function"},
    "models.Transformer": {
        "transformer_task", "processing_kwargs", "modality_config", "module_output_name", "unpad_inputs",
        "query_length", "document_length", "query_expansion",
    },
}  # fmt: skip


def test_what_is_taken_and_not_used_has_a_reason_and_what_is_not_supported_a_remedy() -> None:
    for each in PARAMETERS:
        assert each.how in ("same", "other name", "no effect", "only"), each
        assert (each.how == "same") == (not each.here), each
        assert each.how != "only" or each.default, each
        assert each.convert in CONVERT, each


# Values that are not the default, of the arguments that are not the same and have an effect; some need others.
CHANGED: dict[str, dict[str, Any]] = {
    "optim": {"optim": "sgd"},
    "lr_scheduler_type": {"lr_scheduler_type": "cosine"},
    "warmup_steps": {"warmup_steps": 7},
    "warmup_ratio": {"warmup_ratio": 0.3},
    "eval_strategy": {"eval_strategy": "steps"},
    "eval_steps": {"eval_strategy": "steps", "eval_steps": 7},
    "save_strategy": {"save_strategy": "epoch"},
    "save_steps": {"save_strategy": "steps", "save_steps": 7},
    "batch_sampler": {"batch_sampler": "no_duplicates"},
    "multi_dataset_batch_sampler": {"multi_dataset_batch_sampler": "round_robin"},
    "max_steps": {"max_steps": 7},
    "save_total_limit": {"save_total_limit": 7},
    "metric_for_best_model": {"metric_for_best_model": "eval_loss"},
    "greater_is_better": {"greater_is_better": False},
    "prompts": {"prompts": "query"},
    "router_mapping": {"router_mapping": {"anchor": "query"}},
    "lr_scheduler_kwargs": {"lr_scheduler_type": "polynomial", "lr_scheduler_kwargs": {"power": 2.0}},
    "output_dir": {"output_dir": "elsewhere"},
}
# Settings of calls, of the history under their names and of the model, not of the training.
WHILE_TRAINING = {"disable_tqdm", "logging_strategy", "logging_first_step", "use_cpu", "hub_model_id", "hub_token"}


def settings(**options: Any) -> dict[str, Any]:
    """Our settings of theirs, with the learning rates of all steps."""
    args = training.SentenceTransformerTrainingArguments(**{"output_dir": "out", **options})
    config = training._config(args, "cpu", 150)
    return {**vars(config), "schedule": [config.learning_rate * rate_factor(config, step, 150) for step in range(150)]}


@pytest.mark.parametrize("row", OF_TRAINING, ids=lambda row: row.names[0])
def test_arguments_of_training_have_the_effect_that_the_table_says(row: Counterpart) -> None:
    defaults = training._defaults()
    for name in set(row.names) - WHILE_TRAINING:
        value = defaults.get(name, False)
        other = CHANGED.get(name, {name: value + 3 if type(value) in (int, float) else not value})
        before = {key: each for key, each in other.items() if key != name}
        assert (settings(**other) == settings(**before)) == (row.how == "no effect"), name


def test_other_arguments_of_training_are_taken_at_their_default_alone() -> None:
    defaults = training._defaults()
    refused = set(defaults) - {name for row in OF_TRAINING for name in row.names}
    assert {"adam_beta1", "tf32", "learning_rate_mapping", "data_seed", "report_to"} <= refused
    for name in refused:
        assert settings(**{name: defaults[name]}) == settings()
        with pytest.raises(ValueError, match=f"^{name}=.other.: only .* is supported; see sbert.TrainingConfig"):
            settings(**{name: "other"})


@pytest.mark.parametrize("name", training._CHOICES)
def test_values_that_are_unknown_are_named(name: str) -> None:
    args = training.SentenceTransformerTrainingArguments()
    for value in ("other", {"data": "random"}, DataLoader):
        with pytest.raises(ValueError, match=f"^{name}=.* is unknown; pass one of '"):
            setattr(args, name, value)


def test_every_argument_and_method_of_their_trainers_is_ours_or_an_error() -> None:
    ours = training.SentenceTransformerTrainer
    theirs = (peer.SentenceTransformerTrainer, peer.CrossEncoderTrainer)
    known = {name for row in OF_TRAINERS for name in row.names}
    arguments = set().union(*(parameters(kind.__init__) for kind in theirs)) - parameters(ours.__init__)
    for name in sorted(arguments):
        assert name in known
        assert ours("model", loss=sum, **{name: None})
        with pytest.raises(TypeError, match=rf"^SentenceTransformerTrainer\(\) takes no {name}='given'; instead: \w"):
            ours("model", loss=sum, **{name: "given"})
    methods = {name for kind in theirs for name in dir(kind) if callable(getattr(kind, name)) and name[0] != "_"}
    assert "compute_loss" in methods
    for name in sorted(methods - {*training._CALLED}):
        with pytest.raises(TypeError, match=f"^Mine.{name} is never called here; instead: "):
            type("Mine", (ours,), {name: lambda self: None})
    with pytest.raises(TypeError, match=r"takes no whatever=None; instead: sbert\.Trainer"):
        ours("model", loss=sum, whatever=None)
    assert type("Mine", (ours,), {"train": ours.train, "my_own": 1, "__init__": ours.__init__})


def test_names_of_ours_exist() -> None:
    for section, (_, here) in MODULES.items():
        modules = [importlib.import_module(f"sbert.{module}".rstrip(".")) for module in here]
        for name in (name for row in TABLES[section] if row.how == "same" for name in row.names):
            assert any(hasattr(module, name) for module in modules), (section, name)
    for module in ("functional", "data", "training"):
        importlib.import_module(f"sbert.{module}")
    codes = [code for row in COUNTERPARTS for code in re.findall(r"``([^`]+)``", row.here)]
    names = [name for code in codes for name in re.findall(r"\bsbert(?:\.\w+)+", code)]
    assert len(names) > 60
    for name in names:
        attrgetter(name[6:])(sbert)


@pytest.mark.parametrize("section", MODULES)
def test_what_the_package_of_their_names_lacks_is_an_error_with_the_words_of_the_guide(section: str) -> None:
    modules = [
        importlib.import_module(f"sbert.integrations.sentence_transformers.{each}".rstrip("."))
        for each in MODULES[section][0]
    ]
    offered = {name for module in modules for name in module.__all__}
    for name in {name for row in TABLES[section] for name in row.names} - offered:
        row = switching.find_counterpart(name)
        assert row is not None
        message = re.escape(f"{': ' if row.how == 'not here' else '; use '}{row.plain}")
        with pytest.raises(NotImplementedError, match=message):
            getattr(modules[0], name)()
    with pytest.raises(AttributeError, match="no attribute 'unknown'"):
        _ = modules[0].unknown


def test_paths_of_modules_are_theirs() -> None:
    for name in (name for row in PATHS for name in row.names):
        assert importlib.import_module(f"sentence_transformers.{name}")


def test_the_page_has_a_table_per_section() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_tables(page), "run python -m tests.integrations.names_tables"
    assert page.count(HEAD) == SECTIONS + 2  # And those of parameters.
