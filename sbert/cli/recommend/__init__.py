"""``sbert recommend``: which model and which kind of search are the best for the user's own texts.

| file | about |
|---|---|
| ``command`` | the options, and the order of the work |
| ``collection`` | queries, documents and judgments, read or made from texts |
| ``models`` | the models at hand |
| ``systems`` | the measurement: vectors, words, both, reranking |
| ``show`` | the table and the advice |
"""
