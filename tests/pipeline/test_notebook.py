"""What notebooks display of models, hits, results and histories: tables whose texts stay texts."""

from __future__ import annotations

import pickle
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pandas import DataFrame

from sbert import Normalize, Pooling, SentenceEncoder
from sbert.pipeline.notebook import Table
from sbert.search import Hits, HybridIndex

EVIL = ["<script>alert(1)</script>", "a & b\u202e", "$5 or $6", "\"quoted\" 'text'\nand a line", "x" * 500]


class Parser(HTMLParser):
    """The tags of a page, and the texts of its cells."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.cells: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        self.cells[-1] += data


def read(shown: Any) -> Parser:
    return Parser(shown._repr_html_())


def test_texts_stay_texts() -> None:
    """No tag, no formula and no direction of writing leaves its cell; what is long is shortened."""
    table = Table(["<b>", "score"], [(text, 0.123456) for text in EVIL])
    page = read(table)
    assert set(page.tags) == {"table", "tr", "th", "td"}
    assert page.cells[:4] == ["<b>", "score", EVIL[0], "0.1235"]
    assert max(map(len, page.cells)) == 201
    assert table._repr_html_().startswith('<table class="tex2jax_ignore mathjax_ignore">')
    assert table._repr_html_().count('dir="auto"') == len(page.cells)
    assert "color" not in table._repr_html_(), "a theme's own colours are legible on its ground"
    assert repr(table).splitlines()[3] == "$5 or $6" + " " * 195 + "0.1235"


def test_a_long_table_is_cut() -> None:
    table = Table(["row", "text"], [(row, "a") for row in range(1234)])
    assert read(table).cells[-2:] == ["… 1,134 more rows", ""]
    assert len(repr(table).splitlines()) == 102


def test_a_model(model: SentenceEncoder) -> None:
    shown = SentenceEncoder(*model, prompts={"query": "<query>: "}, similarity_fn_name="dot", device="cpu")
    cells = read(shown).cells
    rows = dict(zip(cells[2::2], cells[3::2], strict=True))
    assert cells[0] == "SentenceEncoder"
    assert rows["module 0"].startswith("Transformer(BertModel, dim=")
    assert rows["similarity"] == "dot"
    assert rows["dimension"] == str(shown.get_sentence_embedding_dimension())
    assert rows["prompts"] == "query: '<query>: '"
    assert rows["longest input"] == f"{shown.max_seq_length} tokens"
    chain = SentenceEncoder(model[0], Pooling(), Normalize(), device="cpu")
    assert [cell for cell in read(chain).cells if cell.startswith("module")] == ["module 0", "module 1", "module 2"]


def test_hits() -> None:
    hits = Hits(np.array([[0.9, 0.5], [0.25, 0.125]], np.float32), np.array([[1, 0], [0, 1]]))
    head = ["query", "rank", "score", "id"]
    assert read(hits).cells == [*head, *"0 1 0.9000 1".split(), "", *"2 0.5000 0".split(), *read(hits).cells[12:]]
    table = hits.with_texts(["<one>", "two"], ["Who?", "What?"])
    assert read(table).cells[5:10] == ["Who?", "1", "0.9000", "1", "two"]
    assert read(table).cells[10:15] == ["", "2", "0.5000", "0", "<one>"]
    assert repr(table).splitlines()[3] == "What?  1     0.2500  0   <one>"
    named = Hits(np.array([[0.5]], np.float32), np.array([["cat"]], object))
    assert read(named.with_texts({"cat": "A cat."}, "Who?")).cells[-5:] == ["Who?", "1", "0.5000", "cat", "A cat."]
    assert repr(named).splitlines()[1].split() == ["0", "1", "0.5000", "cat"]


def test_hits_by_query() -> None:
    hits = Hits(np.array([[0.75, 0.5], [0.25, 0.125]], np.float32), np.array([[1, 0], [0, 1]]))
    assert hits[1] == hits[-1] == [*hits][1] == [(0, 0.25), (1, 0.125)]
    assert [(hit.row, hit.id, hit.score) for hit in hits[0]] == [(1, 1, 0.75), (0, 0, 0.5)]
    assert DataFrame(hits[0]).to_dict("list") == {"id": [1, 0], "score": [0.75, 0.5]}
    columns = {"query": [0, 0, 1, 1], "id": [1, 0, 0, 1], "score": [0.75, 0.5, 0.25, 0.125]}
    assert hits.to_frame().to_dict("list") == columns
    nothing = Hits(np.empty((0, 3), np.float32), np.empty((0, 3), np.int64))
    assert ([*nothing], list(nothing.to_frame())) == ([], ["query", "id", "score"])
    with pytest.raises(TypeError, match=r"not a dict; use hit.row or hit.score instead of hit\['corpus_id'\]"):
        hits[0][0]["corpus_id"]


def test_results_with_their_queries(model: SentenceEncoder) -> None:
    index = HybridIndex(model)
    assert index.search([]) == []
    index.add(["The cat sleeps.", "Taxes rise."])
    results = index.search(["Who sleeps?", "taxes"], top_k=1)
    cells = read(results).cells
    assert cells[5:7] == ["Who sleeps?", "1"]
    assert cells[10:12] == ["taxes", "1"]
    assert cells[9] == results[0][0].text
    assert results == [list(own) for own in results] == pickle.loads(pickle.dumps(results))


# --------------------------------------------------------------------------------------------------------- a kernel

CELLS = {
    "SentenceEncoder": "import numpy as np\nfrom sbert import SentenceEncoder\nmodel = SentenceEncoder()\nmodel",
    "0.9000": "from sbert.search import Hits\nHits(np.array([[0.9]], np.float32), np.array([[0]]))",
    "&lt;b&gt;": "Hits(np.array([[0.9]], np.float32), np.array([[0]])).with_texts(['<b>'])",
    "A cat sleeps.": "from sbert.search import HybridIndex\nindex = HybridIndex(model)\nindex.add(['A cat sleeps.'])\n"
    "index.search('cat')",
    "bar": "_ = model.encode([str(row) for row in range(1000)], show_progress_bar=True)",
}


# Only a kernel shows what a notebook displays.
@pytest.mark.slow
def test_a_notebook_displays_each_form_and_one_bar() -> None:
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS.values()])
    root = str(Path(__file__).parents[2])
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": root}}).execute()
    *shown, bar = notebook.cells
    for text, cell in zip(CELLS, shown, strict=False):
        output = cell.outputs[-1]
        assert output["output_type"] == "execute_result", output
        page = output["data"]["text/html"]
        assert text in page
        assert not re.search(r"<script|\bon\w+=|https?://", page), "it runs and loads nothing"
    written = "".join(output["text"] for output in bar.outputs)
    assert written.count("\n") == 1, "a bar that is drawn again stays on its line"
    assert written.count("\r") > 1
