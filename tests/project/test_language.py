"""The words of the code are those of its readers: none of these, for which the field has a term."""

from __future__ import annotations

from tests.project.names import ambiguous_files, ambiguous_names, vague_variables, wrong_words


def test_words() -> None:
    assert wrong_words() == {}


def test_a_name_has_one_meaning_and_says_it() -> None:
    assert ambiguous_names() == {}
    assert ambiguous_files() == {}
    assert vague_variables() == []
