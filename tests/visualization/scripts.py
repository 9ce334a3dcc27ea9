"""Calls of scripts written for sentence-transformers: which work here unchanged, and which are refused.

Each is a piece of Python that sees ``SentenceTransformer``, ``folder`` (a model's), ``model`` (that model), ``texts``
and ``new`` (a folder that is not there yet). What works leaves a ``result``, which is that of sentence-transformers.
"""

from __future__ import annotations

_MADE = "result = SentenceTransformer(folder, device='cpu', {}).encode(texts)"
_ENCODED = "result = model.encode(texts, {})"

# By what the guide of ``sbert`` calls the group, and the call in it.
WORKS: dict[str, dict[str, str]] = {
    "SentenceTransformer(name_or_folder)": {
        "device=": "result = str(SentenceTransformer(folder, device='cpu').device)",
        "prompts=": _MADE.format("prompts={'query': 'the '}, default_prompt_name='query'"),
        "default_prompt_name=": _MADE.format("default_prompt_name='query'"),
        "similarity_fn_name=": (
            "other = SentenceTransformer(folder, device='cpu', similarity_fn_name='euclidean')\n"
            "result = other.similarity(other.encode(texts), other.encode(texts))"
        ),
        "truncate_dim=": _MADE.format("truncate_dim=5"),
        "revision=": _MADE.format("revision='main'"),
        "token=": _MADE.format("token='secret'"),
        "cache_folder=": _MADE.format("cache_folder=new"),
        "local_files_only=": _MADE.format("local_files_only=True"),
    },
    "encode(sentences)": {
        "prompt_name=": _ENCODED.format("prompt_name='query'"),
        "prompt=": _ENCODED.format("prompt='the '"),
        "batch_size=": _ENCODED.format("batch_size=2"),
        "show_progress_bar=": _ENCODED.format("show_progress_bar=False"),
        'output_value="token_embeddings"': _ENCODED.format("output_value='token_embeddings'"),
        "convert_to_numpy=": _ENCODED.format("convert_to_numpy=False"),
        "convert_to_tensor=": _ENCODED.format("convert_to_tensor=True"),
        "device=": _ENCODED.format("device='cpu'"),
        "normalize_embeddings=": _ENCODED.format("normalize_embeddings=True"),
        "truncate_dim=": _ENCODED.format("truncate_dim=5"),
        'precision="binary"': _ENCODED.format("precision='binary'"),
        'precision="ubinary"': _ENCODED.format("precision='ubinary'"),
    },
    "model": {
        "encode_query": "result = model.encode_query(texts)",
        "encode_document": "result = model.encode_document(texts)",
        "similarity": "result = model.similarity(model.encode(texts), model.encode(texts[:2]))",
        "similarity_pairwise": "result = model.similarity_pairwise(model.encode(texts), model.encode(texts[::-1]))",
        "similarity_fn_name": "model.similarity_fn_name = 'dot'\nresult = model.similarity_fn_name",
        "prompts": "model.prompts = {'query': 'the '}\nresult = model.encode(texts, prompt_name='query')",
        "default_prompt_name": "model.default_prompt_name = 'query'\nresult = model.encode(texts)",
        "max_seq_length": "model.max_seq_length = 6\nresult = model.encode(texts)",
        "tokenizer": "result = model.tokenizer(texts)['input_ids']",
        "device": "result = str(model.device)",
        "dtype": "result = str(model.dtype)",
        "truncate_dim": "model.truncate_dim = 5\nresult = model.encode(texts)",
        "get_sentence_embedding_dimension()": "result = model.get_sentence_embedding_dimension()",
        "model[0].auto_model": "result = type(model[0].auto_model).__name__",
        "to(device)": "result = model.to('cpu').encode(texts)",
        "eval()": "result = model.eval().encode(texts)",
        "save(path)": "model.save(new)\nresult = SentenceTransformer(new, device='cpu').encode(texts)",
        "push_to_hub(repo_id)": "result = model.push_to_hub('me/model', token='secret', private=True, revision='new')",
    },
}

_REFUSED = ("model_kwargs", "tokenizer_kwargs", "processor_kwargs", "config_kwargs", "model_card_data")
_MISSING = (
    *("start_multi_process_pool", "encode_multi_process", "stop_multi_process_pool", "fit", "evaluate"),
    *("save_pretrained", "save_to_hub", "get_max_seq_length", "get_embedding_dimension", "get_sentence_features"),
    *("preprocess", "truncate_sentence_embeddings", "set_pooling_include_prompt", "add_adapter", "load_adapter"),
    "_first_module",
)
REFUSED: dict[str, dict[str, str]] = {
    "SentenceTransformer(name_or_folder)": {
        "model_name_or_path=": "SentenceTransformer(model_name_or_path=folder)",
        "modules=": "SentenceTransformer(modules=list(model))",
        **{f"{name}=": f"SentenceTransformer(folder, {name}={{}})" for name in _REFUSED},
        "trust_remote_code=": "SentenceTransformer(folder, trust_remote_code=True)",
        "backend=": "SentenceTransformer(folder, backend='onnx')",
        "use_auth_token=": "SentenceTransformer(folder, use_auth_token='secret')",
    },
    "encode(sentences)": {
        "pool=": "model.encode(texts, pool={})",
        "chunk_size=": "model.encode(texts, chunk_size=10)",
        'device=["cuda:0", "cuda:1"]': "model.encode(texts, device=['cpu', 'cpu'])",
        "output_value=None": "model.encode(texts, output_value=None)",
        'precision="int8"': "model.encode(texts, precision='int8')",
        'precision="uint8"': "model.encode(texts, precision='uint8')",
    },
    "model": {
        **{name: f"model.{name}" for name in _MISSING},
        'tokenize(texts)["input_ids"]': "model.tokenize(texts)['input_ids']",
        "save(path, model_name=)": "model.save(new, model_name='name')",
        "similarity(embeddings1=)": "x = model.encode(texts)\nmodel.similarity(embeddings1=x, embeddings2=x)",
    },
    "sbert": {
        name: f"from sbert import {name}"
        for name in ("util", "models", "InputExample", "SentenceTransformerTrainer", "SparseEncoder")
    },
}
