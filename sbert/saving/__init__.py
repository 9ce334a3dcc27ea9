"""The model folder on disk: every foreign name, key and file name stands in this package, and nowhere else."""

from sbert.saving.format import REFERENCE, Settings
from sbert.saving.other_readers import differences
from sbert.saving.owned_files import check_replaceable, foreign_file
from sbert.saving.read import read_modules, read_settings
from sbert.saving.write import write_folder

__all__ = [
    "REFERENCE",
    "Settings",
    "check_replaceable",
    "differences",
    "foreign_file",
    "read_modules",
    "read_settings",
    "write_folder",
]
