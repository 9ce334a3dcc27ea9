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
        "model_name_or_path=": "result = SentenceTransformer(model_name_or_path=folder, device='cpu').encode(texts)",
        "modules=": "result = SentenceTransformer(modules=list(model), device='cpu').encode(texts)",
        "model_kwargs=": _MADE.format("model_kwargs={'attn_implementation': 'eager'}"),
        "processor_kwargs=": _MADE.format("processor_kwargs={'truncation_side': 'left'}"),
        "tokenizer_kwargs=": _MADE.format("tokenizer_kwargs={'truncation_side': 'left'}"),
        "config_kwargs=": _MADE.format("config_kwargs={'layer_norm_eps': 0.1}"),
        "trust_remote_code=False": _MADE.format("trust_remote_code=False"),
        'backend="torch"': _MADE.format("backend='torch'"),
        "model_card_data=None": _MADE.format("model_card_data=None"),
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
        "output_value=None": _ENCODED.format("output_value=None")
        + "\nresult = [row['sentence_embedding'] for row in result]",
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
        "get_embedding_dimension()": "result = model.get_embedding_dimension()",
        "get_max_seq_length()": "result = model.get_max_seq_length()",
        "truncate_embeddings(dim)": "with model.truncate_embeddings(5):\n    result = model.encode(texts)",
        "truncate_sentence_embeddings(dim)": (
            "with model.truncate_sentence_embeddings(5):\n    result = model.encode(texts)"
        ),
        "set_pooling_include_prompt(False)": (
            "model.set_pooling_include_prompt(False)\nresult = model.encode(texts, prompt='the ')"
        ),
        "evaluate(evaluator)": "result = model.evaluate(lambda model, *_, **__: model.encode(texts))",
        "_first_module()": "result = type(model._first_module()).__name__",
        "_last_module()": "result = type(model._last_module()).__name__",
        "save_pretrained(path)": (
            "model.save_pretrained(new)\nresult = SentenceTransformer(new, device='cpu').encode(texts)"
        ),
        "save(path, model_name=)": (
            "model.save(new, model_name='name')\nresult = SentenceTransformer(new, device='cpu').encode(texts)"
        ),
        "save(path, create_model_card=False)": (
            "import os\nmodel.save(new, create_model_card=False)\nresult = os.path.exists(new + '/README.md')"
        ),
        "save(path)": "model.save(new)\nresult = SentenceTransformer(new, device='cpu').encode(texts)",
        "push_to_hub(repo_id)": "result = model.push_to_hub('me/model', token='secret', private=True, revision='new')",
    },
}

_MISSING = ("fit", "get_sentence_features", "preprocess", "add_adapter", "load_adapter")
REFUSED: dict[str, dict[str, str]] = {
    "SentenceTransformer(name_or_folder)": {
        "model_card_data=": "SentenceTransformer(folder, model_card_data={})",
        "trust_remote_code=True": "SentenceTransformer(folder, trust_remote_code=True)",
        'backend="onnx"': "SentenceTransformer(folder, backend='onnx')",
    },
    "encode(sentences)": {
        'precision="int8"': "model.encode(texts, precision='int8')",
        'precision="uint8"': "model.encode(texts, precision='uint8')",
    },
    "model": {
        **{name: f"model.{name}" for name in _MISSING},
        'tokenize(texts)["input_ids"]': "model.tokenize(texts)['input_ids']",
        "similarity(embeddings1=)": "x = model.encode(texts)\nmodel.similarity(embeddings1=x, embeddings2=x)",
    },
    "sbert": {
        name: f"from sbert import {name}"
        for name in ("util", "models", "InputExample", "SentenceTransformerTrainer", "SparseEncoder")
    },
}
