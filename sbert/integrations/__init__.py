"""Other programs and libraries that take a sentence encoder: one small adapter for each.

An adapter is imported by its name, ``sbert.integrations.langchain``, and needs the package that it is for. ``model`` is
everywhere an encoder, a folder or a name on the hub; without one, it is the model of the library. Queries and documents
get the prompts that the model has for them.

| for | call | tested with |
|---|---|---|
| LangChain | ``SbertEmbeddings(model)`` | langchain-core 1.8 |
| LlamaIndex | ``Settings.embed_model = SbertEmbedding(model)`` | llama-index-core 0.14 |
| Haystack | ``SbertTextEmbedder(model)``, ``SbertDocumentEmbedder(model)`` | haystack 3.4 |
| Chroma | ``create_collection(name, embedding_function=SbertEmbeddingFunction(model))`` | chromadb 1.5 |
| LanceDB | ``get_registry().get("sbert").create(name=...)`` | lancedb 0.40 |
| BERTopic | ``BERTopic(embedding_model=topics.bertopic_backend(model))`` | bertopic 0.17 |
| KeyBERT | ``KeyBERT(model=topics.keybert_backend(model))`` | keybert 0.9 |
| scikit-learn | ``make_pipeline(SentenceVectors(model), LogisticRegression())`` | scikit-learn 1.9 |
| MTEB | ``mteb.evaluate(MtebModel(model), tasks)`` | mteb 2.26: its 29 offline text tasks |
| txtai | ``Embeddings(method="external", transform=transform(model))`` | txtai 9.14 |

``datasets``, polars and pandas need none: ``dataset.map(lambda rows: {"vector": model.encode(rows["text"])},
batched=True)``. FAISS, usearch, Qdrant, DuckDB and sqlite-vec take the arrays of ``encode`` as they are.

To load a saved Haystack pipeline, name the module: ``Pipeline.loads(text,
allowed_modules=["sbert.integrations.haystack"])``.
"""
