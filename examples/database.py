"""Vectors in a database: insert, search, update and delete them together with their texts, and reopen the file.

python examples/database.py [FILE.db] [--data TEXTS.txt] [--query TEXT] [--model MODEL]

The database is SQLite with the extension sqlite-vec (pip install apsw sqlite-vec, 11 MB): one file and no server, and a
transaction changes a text and its vector together or not at all. DuckDB has vectors as well, but is six times as large
and made for reading tables rather than for changing rows. apsw opens the file, because Python's own sqlite3 is often
built without extensions. FILE.db must not exist; the default is a temporary file.
"""

import tempfile
from pathlib import Path

import numpy as np
from shared import load, parser

from sbert.data import read_texts
from sbert.search import semantic_search

try:
    import apsw
    import sqlite_vec
except ImportError as error:
    raise SystemExit(f"{error.name} is missing; pip install apsw sqlite-vec") from error

TEXTS = [
    "The cat sleeps on the sofa.",
    "A dog barks at the postman.",
    "The bank has raised its interest rates.",
    "Borrowing money becomes more expensive.",
    "She plays the violin in an orchestra.",
]


def opened(path, dim):
    """Open a connection, and create two tables, of texts and of vectors, with the same ids."""
    connection = apsw.Connection(str(path))
    connection.enable_load_extension(True)
    connection.load_extension(sqlite_vec.loadable_path())
    connection.enable_load_extension(False)
    connection.execute("create table if not exists texts (id integer primary key, text text not null)")
    connection.execute(
        f"create virtual table if not exists vectors using vec0(embedding float[{dim}] distance_metric=cosine)"
    )
    return connection


def insert(connection, texts):
    """Insert texts and their vectors, and return their ids."""
    vectors = [vector.tobytes() for vector in model.encode_document(texts)]
    with connection:  # All or nothing.
        ids = [next(connection.execute("insert into texts (text) values (?) returning id", (t,)))[0] for t in texts]
        connection.executemany("insert into vectors (rowid, embedding) values (?, ?)", zip(ids, vectors, strict=True))
    return ids


def update(connection, number, text):
    """Replace the text of an id, and its vector."""
    with connection:
        connection.execute("update texts set text = ? where id = ?", (text, number))
        vector = model.encode_document(text).tobytes()
        connection.execute("update vectors set embedding = ? where rowid = ?", (vector, number))


def delete(connection, number):
    """Delete a text and its vector."""
    with connection:
        connection.execute("delete from texts where id = ?", (number,))
        connection.execute("delete from vectors where rowid = ?", (number,))


def search(connection, query, top_k=3):
    """The cosines, ids and texts of the nearest neighbours of a query."""
    return connection.execute(
        "select 1 - distance, id, text from vectors join texts on id = vectors.rowid"
        " where embedding match ? and k = ? order by distance",
        (model.encode_query(query).tobytes(), top_k),
    ).fetchall()


def difference(connection, query, top_k=3):
    """The maximum difference of the scores from those of semantic_search over the same vectors."""
    rows = connection.execute("select embedding from vectors")
    stored = np.stack([np.frombuffer(row, np.float32) for (row,) in rows])  # (texts, dim)
    hits = semantic_search(model.encode_query(query), stored, top_k)
    scores = [score for score, _, _ in search(connection, query, top_k)]
    return float(np.abs(hits.scores[0] - scores).max())


def show(what, connection):
    """Print the texts that are nearest to the query."""
    print(f"{what}: {options.query}")
    for score, number, text in search(connection, options.query):
        print(f"{score:6.3f}  {number:4}  {text}")
    print(f"        differs from semantic_search by {difference(connection, options.query):.1e} at most\n")


flags = parser(__doc__, "a text file, one text per line")
flags.add_argument("file", nargs="?", type=Path, help="the database (default: a temporary file)")
flags.add_argument("--query", default="A kitten is napping.", help="what to search for")
options = flags.parse_args()
if options.file and options.file.exists():
    flags.error(f"{options.file} exists already; pass a new file")

model = load(options.model)
texts = [text for text in read_texts(options.data) if text.strip()] if options.data else TEXTS
with tempfile.TemporaryDirectory() as folder:
    path = options.file or Path(folder) / "texts.db"
    database = opened(path, model.get_sentence_embedding_dimension())
    ids = insert(database, texts)
    show(f"{len(texts)} texts", database)
    update(database, ids[1], "Our kitten dozes in the sun.")
    show("after an update", database)
    delete(database, ids[0])
    show("after a deletion", database)
    database.close()
    database = opened(path, model.get_sentence_embedding_dimension())
    show("opened again", database)
    database.close()
