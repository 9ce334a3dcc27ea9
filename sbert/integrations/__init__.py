"""Other programs and libraries that take a sentence encoder: one small adapter for each.

An adapter is imported by its name, ``sbert.integrations.langchain``, and needs the package that it is for. ``model`` is
everywhere an encoder, a folder or a name on the hub; without one, it is the bundled model. Queries and documents
get the prompts that the model has for them. The docstring of each file has an example and the pitfalls.

| for | file | call | tested with |
|---|---|---|---|
| LangChain | ``langchain`` | ``SbertEmbeddings(model)`` | langchain-core 1.7 |
| LlamaIndex | ``llama_index`` | ``Settings.embed_model = SbertEmbedding(model)`` | core 0.14 |
| Haystack | ``haystack`` | ``SbertTextEmbedder(model)``, ``SbertDocumentEmbedder(model)`` | haystack 3.4 |
| Chroma | ``chroma`` | ``create_collection(name, embedding_function=SbertEmbeddingFunction(model))`` | chromadb 1.5 |
| LanceDB | ``lancedb`` | ``get_registry().get("sbert").create(name=name)`` | lancedb 0.40 |
| scikit-learn | ``sklearn`` | ``make_pipeline(SentenceVectors(model), LogisticRegression())`` | scikit-learn 1.9 |
| MTEB | ``mteb`` | ``mteb.evaluate(MtebModel(model), tasks)`` | mteb 2.26: its 29 offline text tasks |
| Ray Data | ``ray`` | ``rows.map_batches(Embed, ...)`` | ray 2.60 |
| Dask | ``frames`` | ``frame.map_partitions(embed_frame, model, meta=...)`` | frames of pandas |
| Spark | ``frames`` | ``rows.mapInPandas(partial(embed_frames, model=model), schema)`` | frames of pandas |

These need none: FAISS, usearch, Qdrant, DuckDB and sqlite-vec take the arrays of ``encode``, which itself takes the
columns of ``datasets``, polars and pandas.

>>> from datasets import Dataset
>>> rows = Dataset.from_dict({"text": ["A cat sleeps.", "Taxes rise."]})
>>> rows.map(lambda batch: {"vector": model.encode(batch["text"])}, batched=True).column_names
['text', 'vector']

## Programs that load sentence-transformers themselves

They run with this library after ``install()``, which comes before their import; nothing of theirs is changed:

>>> from sbert.integrations.sentence_transformers import install
>>> install()  # doctest: +SKIP
>>> from keybert import KeyBERT  # doctest: +SKIP
>>> KeyBERT("sbert-mini").extract_keywords("Cats sleep in the warm house.", top_n=1)  # doctest: +SKIP

This is tested with KeyBERT, BERTopic, Haystack (sentence-transformers-haystack 2.0), LangChain (langchain-huggingface
1.2), LlamaIndex (llama-index-embeddings-huggingface 0.8), Chroma, LanceDB, txtai and SetFit, whose head is trained so
(``sklearn`` shows how to train the encoder, too): the vectors are those of the original, to 1e-6. KeyBERT and BERTopic
take a name or a ``SentenceTransformer`` that is loaded; they do not know a ``SentenceEncoder``, and would download
a model of their own in its place.

## Which models load

Code from model folders is never run, whatever ``trust_remote_code`` says: a folder that needs it is an error. Most
models that once needed it are part of transformers now and load without it. Each row is tested with a small random
model in the form of the real folder: its vectors are those of transformers, to 1e-5. The real weights were not
downloaded for it.

| model | ``model_type`` | here |
|---|---|---|
| all-MiniLM, all-mpnet, LaBSE, e5, multilingual-e5, bge | bert, mpnet, xlm-roberta | loads |
| bge-m3 | xlm-roberta | loads: its dense vectors; sparse and multiple vectors are not here |
| nomic-embed-text-v1.5 | nomic_bert | loads, unless ``rotary_scaling_factor`` is set, which needs its code |
| nomic-embed-text-v2-moe | nomic_bert | does not: its mixture of experts needs its code; load bge-m3 |
| gte-base-en-v1.5, gte-large-en-v1.5, gte-multilingual-base | new | loads as gte, with its scaled positions |
| snowflake-arctic-embed-m-v2.0 | gte | loads |
| modernbert-embed-base | modernbert | loads |
| embeddinggemma-300m | gemma3_text | loads, with attention in both directions |
| Qwen3-Embedding | qwen3 | loads; the last token is the vector, and queries have an instruction as their prompt |
| jina-embeddings-v3-hf | jina_embeddings_v3 | loads: its network, without the adapters of tasks |
| jina-embeddings-v3 | xlm-roberta | does not: its code is another network; load jina-embeddings-v3-hf |
| jina-embeddings-v2 | bert | does not: ALiBi positions; for long texts, load modernbert-embed-base or bge-m3 |
| KoSimCSE and other plain folders | roberta, bert | loads with mean pooling; see below |

A folder without ``modules.json`` does not say how its tokens are pooled. If the authors took the first token, as for
SimCSE, say so:

>>> from sbert import Pooling, SentenceEncoder, Transformer
>>> first = SentenceEncoder(Transformer(minilm), Pooling("cls"))  # or "BM-K/KoSimCSE-roberta"

A model whose configuration asks for what only its code can do is refused with that value, instead of giving vectors
that are slightly wrong.
"""
