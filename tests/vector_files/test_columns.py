"""Columns that go with the vectors to Parquet: the types and values of the source, or an error."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sbert import SentenceEncoder
from sbert.data import Texts
from sbert.vector_files import VectorFiles, merge, reader, write
from tests.vector_files import samples

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

ROWS, MOMENT = 40, 1_234_567_891_234_567_891
TEXTS = [f"red fox {row}" for row in range(ROWS)]
EXACT = {
    "int8": pa.array(range(ROWS), pa.int8()),
    "int32": pa.array([None, *range(1, ROWS)], pa.int32()),
    "int64": pa.array([2**62 + row for row in range(ROWS)]),
    "uint64": pa.array([2**64 - 1 - row for row in range(ROWS)], pa.uint64()),
    "float32": pa.array([0.1] * ROWS, pa.float32()),
    "decimal": pa.array([Decimal(f"{row}.5") for row in range(ROWS)], pa.decimal128(20, 4)),
    "bytes": pa.array([b"\xff\x00"] * ROWS, pa.binary(2)),
    "milliseconds": pa.array(range(ROWS), pa.timestamp("ms", "UTC")),
    "moment": pa.array([MOMENT + row for row in range(ROWS)], pa.timestamp("ns", "Europe/Berlin")),
    "moments": pa.array([[MOMENT + row, None] for row in range(ROWS)], pa.list_(pa.timestamp("ns"))),
    "span": pa.array([MOMENT + row for row in range(ROWS)], pa.duration("ns")),
    "list": pa.array([[0.5] * (row % 3) for row in range(ROWS)], pa.list_(pa.float32())),
    "fixed": pa.array([[0.5, row] for row in range(ROWS)], pa.list_(pa.float32(), 2)),
    "map": pa.array([[("a", row)] * (row % 3) for row in range(ROWS)], pa.map_(pa.string(), pa.int16())),
    "struct": pa.array([{"a": row, "b": None} for row in range(ROWS)], pa.struct({"a": pa.int16(), "b": pa.string()})),
}


@pytest.fixture(autouse=True)
def smaller_windows(small_windows: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "STRIPE", 4)
    monkeypatch.setattr(write, "_WINDOW", 8)


def encoded(model: SentenceEncoder, out: Path, texts: Texts, **options: Any) -> Any:
    model.encode(texts, out=out, on_truncate="ignore", show_progress_bar=False, **options)
    return pq.read_table(out).drop_columns("vector")


def test_values_and_types_of_parquet(words: SentenceEncoder, tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    table = pa.table({"text": TEXTS, **EXACT})
    pq.write_table(table, tmp_path / "a.parquet")
    kept = pq.read_table(tmp_path / "a.parquet").select(list(EXACT))
    found = encoded(words, tmp_path / "v.parquet", Texts(tmp_path / "a.parquet", "text", keep=list(EXACT)))
    for name in EXACT:
        assert found.schema.field(name).type == kept.schema.field(name).type, name
        assert found[name].equals(kept[name]), name
    assert found.schema.field("moment").type == pa.timestamp("ns", "Europe/Berlin")
    kinds = {name: EXACT[name] for name in ("int8", "uint64", "float32", "moment", "list")}
    data = pytest.importorskip("datasets").Dataset(pa.table({"text": TEXTS, **kinds}))
    for source in (data, data.to_iterable_dataset()):
        texts = Texts(source, "text", keep=list(kinds))
        assert encoded(words, tmp_path / "d.parquet", texts, overwrite=True).equals(pa.table(kinds))
    for index in range(2):
        texts = Texts(tmp_path / "a.parquet", "text", keep=list(EXACT))
        words.encode(texts, out=tmp_path / "w.parquet", on_truncate="ignore", shard=(index, 2))
    assert pq.read_table(merge(tmp_path / "w.parquet")).drop_columns("vector").equals(found)


def test_types_of_several_files_and_of_none(words: SentenceEncoder, tmp_path: Path) -> None:
    for name, kind in (("a", pa.int8()), ("b", pa.int32()), ("c", pa.string())):
        values = pa.array(range(20), pa.int8()).cast(kind)
        table = pa.table({"text": TEXTS[:20], "id": values, "word": pa.array(["x", "y"] * 10).dictionary_encode()})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    both = Texts([tmp_path / "a.parquet", tmp_path / "b.parquet"], "text", keep=["id", "word"])
    found = encoded(words, tmp_path / "v.parquet", both)
    assert found.schema.types == [pa.int32(), pa.string()]
    assert found.to_pydict() == {"id": [*range(20)] * 2, "word": ["x", "y"] * 20}
    with pytest.raises(ValueError, match="the files have different types in one column"):
        encoded(words, tmp_path / "w.parquet", Texts(str(tmp_path / "[abc].parquet"), "text", keep=["id"]))
    none = encoded(words, tmp_path / "none.parquet", Texts.of([], id=[]))
    assert (none.column_names, len(none)) == (["id"], 0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (pa.array([1] * ROWS, pa.time64("ns")), r"'x' has the type time64\[ns\], which cannot be copied; convert it"),
        (["a"] * 20 + [1] * 20, "'x' do not fit one type of Arrow: Unable to merge"),
        ([0.5] * 20 + [2**53 + 1] * 20, "'x' do not fit one type of Arrow: Integer value 9007199254740993"),
        (["\ud800"] * ROWS, "'x' do not fit one type of Arrow: .*surrogates not allowed"),
        ([2**64] * ROWS, "'x' do not fit one type of Arrow: .*too large"),
    ],
)
def test_values_that_do_not_fit(words: SentenceEncoder, tmp_path: Path, values: Any, message: str) -> None:
    texts = Texts.of(TEXTS, x=values)
    if isinstance(values, pa.Array):
        pq.write_table(pa.table({"text": TEXTS, "x": values}), tmp_path / "a.parquet")
        texts = Texts(tmp_path / "a.parquet", "text", keep=["x"])
    for _ in range(2):  # Once more, from the journal.
        with pytest.raises(ValueError, match=message):
            encoded(words, tmp_path / "v.parquet", texts)


def test_types_of_values(words: SentenceEncoder, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    columns: dict[str, Any] = {
        "number": [None] * 12 + [2**53] * 12 + [0.5] * 16,
        "object": [{"a": 1}] * 12 + [{"b": "x"}] * 28,
        "vector of it": np.arange(2 * ROWS, dtype=np.float32).reshape(ROWS, 2),
        "time": np.array([MOMENT] * ROWS, "datetime64[ns]"),
    }
    found = encoded(words, tmp_path / "v.parquet", Texts.of(TEXTS, **columns))
    assert found["number"].to_pylist() == columns["number"]
    assert found["object"].to_pylist() == [{"a": 1, "b": None}] * 12 + [{"a": None, "b": "x"}] * 28
    assert found["vector of it"].to_pylist() == columns["vector of it"].tolist()
    assert found["time"].cast(pa.int64()).to_pylist() == [MOMENT] * ROWS
    with pytest.raises(ValueError, match=r"'time' do not .* has nanoseconds; pass an array of NumPy"):
        encoded(words, tmp_path / "w.parquet", Texts.of(TEXTS, time=[pandas.Timestamp(MOMENT)] * ROWS))


def test_other_columns_are_another_input() -> None:
    def digest(**columns: Any) -> str:
        return next(window.input for window in reader.Reader(Texts.of(["a"], **columns), 8).windows())

    long = np.zeros((1, 3000))
    other = long.copy()
    other[0, 1500] = 1.0
    assert digest(x=long) == digest(x=long.copy()) != digest(x=other)
    assert len({digest(x=[1]), digest(x=[1.0]), digest(x=["1"]), digest(x=[None])}) == 4


def test_columns_without_a_file(words: SentenceEncoder) -> None:
    with pytest.warns(
        UserWarning, match=r"keep=\('x',\) has no effect without out=; pass out= with a .parquet"
    ) as caught:
        words.encode(Texts.of(["red"], x=[1]))
    assert caught[0].filename == __file__


def test_parquet(words: SentenceEncoder, tmp_path: Path) -> None:
    numbers = [None] * 40 + [row / 2 for row in range(43)]
    result = samples.encode(words, tmp_path / "v.parquet", Texts.of(samples.TEXTS, text=samples.TEXTS, number=numbers))
    assert isinstance(result, VectorFiles)
    assert (result.shape, result.dtype, len(result)) == ((samples.ROWS, 6), np.float32, samples.ROWS)
    np.testing.assert_array_equal(np.asarray(result), words.encode(samples.TEXTS))
    table = pq.read_table(tmp_path / "v.parquet")
    assert (table["text"].to_pylist(), table["number"].to_pylist()) == (samples.TEXTS, numbers)
    np.testing.assert_array_equal(np.stack(table["vector"].to_numpy()), words.encode(samples.TEXTS))
    with pytest.raises(ValueError, match="has no room for the columns number"):
        samples.encode(words, tmp_path / "v.npy", Texts.of(samples.TEXTS, number=numbers))
    with pytest.raises(ValueError, match="'vector' is that of the vectors"):
        samples.encode(words, tmp_path / "v.parquet", Texts.of(samples.TEXTS, vector=numbers))
