"""Other programs and libraries that take a sentence encoder: one small adapter for each.

The guide is ``guide.md`` in this folder. An adapter is imported by its name, such as ``sbert.integrations.langchain``,
and needs the package that it is for. ``model`` is everywhere an encoder, a folder or a name on the hub; without one, it
is the bundled model.

| for | file | call |
|---|---|---|
| LangChain | ``langchain`` | ``SbertEmbeddings(model)`` |
| LlamaIndex | ``llama_index`` | ``Settings.embed_model = SbertEmbedding(model)`` |
| Haystack | ``haystack`` | ``SbertTextEmbedder(model)``, ``SbertDocumentEmbedder(model)`` |
| Chroma | ``chroma`` | ``create_collection(name, embedding_function=SbertEmbeddingFunction(model))`` |
| LanceDB | ``lancedb`` | ``get_registry().get("sbert").create(name=name)`` |
| scikit-learn | ``sklearn`` | ``make_pipeline(SentenceVectors(model), LogisticRegression())`` |
| MTEB | ``mteb`` | ``mteb.evaluate(MtebModel(model), tasks)`` |
| Ray Data | ``ray`` | ``rows.map_batches(Embed, ...)`` |
| Dask | ``frames`` | ``frame.map_partitions(embed_frame, model, meta=...)`` |
| Spark | ``frames`` | ``rows.mapInPandas(partial(embed_frames, model=model), schema)`` |
"""
