"""Pieces of scripts written for sentence-transformers, which are run with both libraries; the results are compared.

Each leaves a ``result``, and sees ``SentenceTransformer``, ``folder`` and ``scorer_folder`` (of models), ``model`` (the
first of them, loaded), ``texts``, ``queries``, ``rows`` (anchor, positive, negative), ``scores`` (one per row) and
``new`` (a folder that is not there yet); ``centred`` subtracts the mean of vectors.

Those of ``PLAIN`` run here with ``SentenceEncoder`` as ``SentenceTransformer``; those of ``SCRIPTS`` and ``SLOW``
import from ``sentence_transformers``, for which the package of that name in ``sbert.integrations`` stands.
"""

from __future__ import annotations

_MADE = "result = SentenceTransformer(folder, device='cpu', {}).encode(texts)"
_ENCODED = "result = model.encode(texts, {})"

# What encodes and compares, with another import and nothing else; by the group and the call.
PLAIN: dict[str, dict[str, str]] = {
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


def _snippets(start: str, text: str) -> dict[str, str]:
    """Each piece by the name in the comment before it; all of them begin with the same lines."""
    pieces = [piece.partition("\n") for piece in text.strip().removeprefix("# ").split("\n\n# ")]
    return {name: start + source for name, _, source in pieces}


_UTIL = """\
from sentence_transformers import util
vectors = model.encode(texts, convert_to_tensor=True)
asked = model.encode(queries, convert_to_tensor=True)
"""
_SCORER = """\
from sentence_transformers import CrossEncoder
scorer = CrossEncoder(scorer_folder, device="cpu")
pairs = [(queries[0], text) for text in texts]
"""
_EVALUATION = """\
from sentence_transformers import evaluation
first, second, third = (list(column) for column in zip(*rows))
"""

# What needs other modules than the encoder.
SCRIPTS: dict[str, dict[str, str]] = {
    "similarities": _snippets(
        _UTIL,
        """
# cos_sim
result = util.cos_sim(asked, vectors)

# cos_sim of one vector
result = util.cos_sim(vectors[0], vectors)

# cos_sim of arrays
result = util.cos_sim(vectors.numpy(), asked.numpy())

# dot_score
result = util.dot_score(asked, vectors)

# euclidean_sim
result = util.euclidean_sim(asked, vectors)

# manhattan_sim
result = util.manhattan_sim(asked, vectors)

# pytorch_cos_sim
result = util.pytorch_cos_sim(asked, vectors)

# pairwise_cos_sim
result = util.pairwise_cos_sim(vectors, vectors.flip(0))

# pairwise_dot_score
result = util.pairwise_dot_score(vectors, vectors.flip(0))

# pairwise_euclidean_sim
result = util.pairwise_euclidean_sim(vectors, vectors.flip(0))

# pairwise_manhattan_sim
result = util.pairwise_manhattan_sim(vectors, vectors.flip(0))

# pairwise_angle_sim
result = util.pairwise_angle_sim(vectors, vectors.flip(0))

# SimilarityFunction
from sentence_transformers import SimilarityFunction
model.similarity_fn_name = SimilarityFunction.DOT_PRODUCT
result = model.similarity(asked, vectors)

# most similar pairs by hand
scores = util.cos_sim(vectors, vectors)
order = [(i, j) for i in range(len(texts)) for j in range(i)]
result = [max(order, key=lambda pair: scores[pair]), scores.topk(3, dim=1).values]
""",
    ),
    "search": _snippets(
        _UTIL,
        """
# semantic_search
result = util.semantic_search(asked, vectors, top_k=3)

# semantic_search of one query
result = util.semantic_search(asked[0], vectors)[0]

# semantic_search with the dot product
result = util.semantic_search(asked, vectors, score_function=util.dot_score, top_k=4)

# semantic_search of normalized vectors
result = util.semantic_search(
    util.normalize_embeddings(asked), util.normalize_embeddings(vectors), score_function=util.dot_score
)

# semantic_search in blocks
result = util.semantic_search(asked, vectors, query_chunk_size=1, corpus_chunk_size=3, top_k=5)

# semantic_search of queries and documents
result = util.semantic_search(model.encode_query(queries), model.encode_document(texts), top_k=2)

# hits as texts
hits = util.semantic_search(asked, vectors, top_k=2)
result = [[texts[hit["corpus_id"]] for hit in found] for found in hits]

# topk by hand
result = list(model.similarity(asked, vectors).topk(2))

# retrieve and rerank
from sentence_transformers import CrossEncoder
scorer = CrossEncoder(scorer_folder, device="cpu")
hits = util.semantic_search(asked[:1], vectors, top_k=4)[0]
scores = scorer.predict([(queries[0], texts[hit["corpus_id"]]) for hit in hits])
result = sorted(zip(scores.tolist(), [hit["corpus_id"] for hit in hits]), reverse=True)

# paraphrase_mining
result = util.paraphrase_mining(model, texts)

# paraphrase_mining of the best pairs
result = util.paraphrase_mining(model, texts, top_k=2, max_pairs=4, batch_size=3)

# paraphrase_mining_embeddings
result = util.paraphrase_mining_embeddings(vectors, top_k=3)

# community_detection
result = util.community_detection(vectors, threshold=0.7, min_community_size=2)

# k-means
from sklearn.cluster import KMeans
result = KMeans(3, n_init=1, random_state=0).fit(vectors.numpy()).labels_

# agglomerative clustering
from sklearn.cluster import AgglomerativeClustering
normal = util.normalize_embeddings(vectors).numpy()
result = AgglomerativeClustering(n_clusters=None, distance_threshold=1.0).fit(normal).labels_

# mine_hard_negatives
from datasets import Dataset
pairs = Dataset.from_dict({"anchor": queries, "positive": texts[: len(queries)]})
mined = util.mine_hard_negatives(pairs, model, corpus=texts, num_negatives=2, verbose=False)
result = [[row["anchor"], row["positive"], row["negative"]] for row in mined]

# mine_hard_negatives with a margin
from datasets import Dataset
pairs = Dataset.from_dict({"anchor": queries, "positive": texts[: len(queries)]})
mined = util.mine_hard_negatives(
    pairs, model, corpus=texts, num_negatives=1, absolute_margin=0.01, output_format="n-tuple", verbose=False
)
result = [list(row.values()) for row in mined]
""",
    ),
    "smaller vectors": _snippets(
        _UTIL,
        """
# truncate_embeddings
result = util.truncate_embeddings(vectors, 4)

# truncate and normalize
result = util.normalize_embeddings(vectors[:, :6])

# truncate_dim and similarity
other = SentenceTransformer(folder, device="cpu", truncate_dim=6)
result = other.similarity(other.encode(queries), other.encode(texts))

# quantize_embeddings to bits
result = util.quantize_embeddings(vectors.numpy(), precision="ubinary")

# quantize_embeddings to signed bits
result = util.quantize_embeddings(vectors.numpy(), precision="binary")

# quantize_embeddings to int8 by ranges
import numpy as np
array = vectors.numpy()
result = util.quantize_embeddings(array, "int8", ranges=np.stack([array.min(0), array.max(0)])).astype(int)

# quantize_embeddings to int8 by other vectors
result = util.quantize_embeddings(asked.numpy(), "int8", calibration_embeddings=vectors.numpy()).astype(int)

# quantize_embeddings to uint8
result = util.quantize_embeddings(vectors.numpy(), "uint8", calibration_embeddings=vectors.numpy()).astype(int)

# Hamming distances of bits
import numpy as np
bits = np.unpackbits(model.encode(texts, precision="ubinary"), axis=1)
result = (bits[:, None] != bits).sum(2)
""",
    ),
    "models": _snippets(
        "from sentence_transformers import models\nwords = models.Transformer(folder)\n",
        """
# Transformer and Pooling
other = SentenceTransformer(modules=[words, models.Pooling(words.get_embedding_dimension())], device="cpu")
result = other.encode(texts)

# Pooling of the first token
pooling = models.Pooling(words.get_embedding_dimension(), pooling_mode="cls")
result = SentenceTransformer(modules=[words, pooling], device="cpu").encode(texts)

# Pooling of the maximum
pooling = models.Pooling(words.get_embedding_dimension(), pooling_mode="max")
result = SentenceTransformer(modules=[words, pooling], device="cpu").encode(texts)

# Pooling by weighted mean
pooling = models.Pooling(words.get_embedding_dimension(), pooling_mode="weightedmean")
result = SentenceTransformer(modules=[words, pooling], device="cpu").encode(texts)

# Normalize
pooling = models.Pooling(words.get_embedding_dimension(), "mean")
result = SentenceTransformer(modules=[words, pooling, models.Normalize()], device="cpu").encode(texts)

# Dense
import torch
torch.manual_seed(0)
pooling = models.Pooling(words.get_embedding_dimension())
dense = models.Dense(pooling.get_embedding_dimension(), 8, activation_function=torch.nn.Tanh())
result = SentenceTransformer(modules=[words, pooling, dense], device="cpu").encode(texts)

# LayerNorm and Dropout
pooling = models.Pooling(words.get_embedding_dimension())
norm = models.LayerNorm(pooling.get_embedding_dimension())
result = SentenceTransformer(modules=[words, pooling, norm, models.Dropout(0.1)], device="cpu").encode(texts)

# StaticEmbedding
import torch
torch.manual_seed(0)
words = models.StaticEmbedding(model.tokenizer, embedding_weights=torch.randn(len(model.tokenizer), 8))
result = SentenceTransformer(modules=[words], device="cpu").encode(texts)

# max_seq_length of a module
words = models.Transformer(folder, max_seq_length=8)
other = SentenceTransformer(modules=[words, models.Pooling(words.get_embedding_dimension())], device="cpu")
result = other.encode(texts)

# save and load
other = SentenceTransformer(modules=[words, models.Pooling(words.get_embedding_dimension(), "max")], device="cpu")
other.save(new)
result = SentenceTransformer(new, device="cpu").encode(texts)
""",
    ),
    "evaluation": _snippets(
        _EVALUATION,
        """
# EmbeddingSimilarityEvaluator
evaluator = evaluation.EmbeddingSimilarityEvaluator(first, second, scores, name="dev")
result = evaluator(model)["dev_spearman_cosine"]

# EmbeddingSimilarityEvaluator with Pearson
evaluator = evaluation.EmbeddingSimilarityEvaluator(first, second, scores, main_similarity="dot", name="dev")
result = model.evaluate(evaluator)["dev_pearson_dot"]

# BinaryClassificationEvaluator
evaluator = evaluation.BinaryClassificationEvaluator(first, second, [1, 0, 1, 0, 1, 1], name="dev")
found = evaluator(model)
result = [found[f"dev_cosine_{name}"] for name in ("accuracy", "f1", "ap")]

# TripletEvaluator
result = evaluation.TripletEvaluator(first, second, third, name="dev")(model)["dev_cosine_accuracy"]

# InformationRetrievalEvaluator
documents = {str(i): text for i, text in enumerate(texts)}
asked = {"a": queries[0], "b": queries[1]}
evaluator = evaluation.InformationRetrievalEvaluator(asked, documents, {"a": {"0", "3"}, "b": {"1"}}, name="dev")
found = evaluator(model)
result = [found[f"dev_cosine_{name}"] for name in ("accuracy@3", "precision@5", "recall@5", "ndcg@10", "mrr@10")]

# RerankingEvaluator
samples = [{"query": a, "positive": [b], "negative": [c, texts[0]]} for a, b, c in rows]
found = evaluation.RerankingEvaluator(samples, at_k=3, name="dev")(model)
result = [found["dev_map"], found["dev_mrr@3"], found["dev_ndcg@3"]]

# TranslationEvaluator
result = evaluation.TranslationEvaluator(first, second, name="dev")(model)["dev_mean_accuracy"]

# MSEEvaluator
result = evaluation.MSEEvaluator(first, second, teacher_model=model, name="dev")(model)["dev_negative_mse"]

# ParaphraseMiningEvaluator
sentences = {str(i): text for i, text in enumerate(texts)}
evaluator = evaluation.ParaphraseMiningEvaluator(sentences, [("0", "1"), ("2", "5")], name="dev")
found = evaluator(model)
result = [found["dev_average_precision"], found["dev_f1"]]

# SequentialEvaluator
one = evaluation.EmbeddingSimilarityEvaluator(first, second, scores, name="one")
two = evaluation.TripletEvaluator(first, second, third, name="two")
found = evaluation.SequentialEvaluator([one, two])(model)
result = [found["one_spearman_cosine"], found["two_cosine_accuracy"]]
""",
    ),
    "CrossEncoder": _snippets(
        _SCORER,
        """
# predict
result = scorer.predict(pairs)

# predict one pair
result = scorer.predict(pairs[0])

# predict with an activation
import torch
result = scorer.predict(pairs, activation_fn=torch.nn.Identity())

# predict tensors
result = scorer.predict(pairs, convert_to_tensor=True, batch_size=2)

# rank
result = scorer.rank(queries[0], texts)

# rank with documents
result = scorer.rank(queries[1], texts, top_k=3, return_documents=True)

# max_length
result = CrossEncoder(scorer_folder, device="cpu", max_length=12).predict(pairs)

# several classes
other = CrossEncoder(scorer_folder + "3", device="cpu")
result = other.predict(pairs, apply_softmax=True)

# num_labels
result = CrossEncoder(scorer_folder + "3", num_labels=3, device="cpu").predict(pairs).argmax(axis=1)

# save and load
scorer.save_pretrained(new)
result = CrossEncoder(new, device="cpu").predict(pairs)

# evaluation of scores
from sentence_transformers.cross_encoder.evaluation import CrossEncoderCorrelationEvaluator
evaluator = CrossEncoderCorrelationEvaluator([row[:2] for row in rows], scores, name="dev")
result = evaluator(scorer)["dev_spearman"]
""",
    ),
}

_TRAINED = """\
from datasets import Dataset
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments, losses
data = Dataset.from_dict({})
loss = losses.{}
args = SentenceTransformerTrainingArguments(
    output_dir=new, num_train_epochs=3, per_device_train_batch_size=6, learning_rate=1e-4, warmup_ratio=0.0,
    weight_decay=0.0, seed=1, report_to="none", save_strategy="no", disable_tqdm=True,
)
SentenceTransformerTrainer(model=model, args=args, train_dataset=data, loss=loss).train()
result = centred(model.encode(texts))"""
_A, _P, _N = (f"[row[{i}] for row in rows]" for i in range(3))
_PAIR = f"{{'anchor': {_A}, 'positive': {_P}}}"
_TRIPLET = f"{{'anchor': {_A}, 'positive': {_P}, 'negative': {_N}}}"
_SCORED = f"{{'first': {_A}, 'second': {_P}, 'score': scores}}"
_BINARY = f"{{'first': {_A}, 'second': {_P}, 'label': [1, 0, 1, 0, 1, 1]}}"
_CLASSES = f"{{'first': {_A}, 'second': {_P}, 'label': [0, 1, 2, 0, 1, 2]}}"
_GROUPS = f"{{'sentence': {_A}, 'label': [0, 0, 1, 1, 2, 2]}}"
_MARGINS = f"{{'query': {_A}, 'positive': {_P}, 'negative': {_N}, 'score': scores}}"
_TEACHER = f"{{'sentence': {_A}, 'label': (-model.encode(texts[:6])).tolist()}}"
_LIST = f"{{'query': {_A}, 'positive': {_P}, 'negative': {_N}, 'label': [[score, 0.1] for score in scores]}}"
_LOSSES = {
    "MultipleNegativesRankingLoss(model)": _PAIR,
    "MultipleNegativesRankingLoss(model, scale=10.0)": _TRIPLET,
    "CachedMultipleNegativesRankingLoss(model, mini_batch_size=2)": _PAIR,
    "MultipleNegativesSymmetricRankingLoss(model)": _PAIR,
    "GISTEmbedLoss(model, guide=SentenceTransformer(folder, device='cpu'))": _PAIR,
    "GISTEmbedLoss(model, SentenceTransformer(folder), contrast_anchors=False, contrast_positives=False)": _PAIR,
    "CosineSimilarityLoss(model)": _SCORED,
    "CoSENTLoss(model)": _SCORED,
    "AnglELoss(model)": _SCORED,
    "ContrastiveLoss(model)": _BINARY,
    "ContrastiveLoss(model, margin=0.3)": _BINARY,
    "OnlineContrastiveLoss(model)": _BINARY,
    "TripletLoss(model)": _TRIPLET,
    "TripletLoss(model, losses.TripletDistanceMetric.COSINE, 0.5)": _TRIPLET,
    "SoftmaxLoss(model, model.get_embedding_dimension(), 3)": _CLASSES,
    "BatchAllTripletLoss(model)": _GROUPS,
    "BatchHardTripletLoss(model)": _GROUPS,
    "BatchHardSoftMarginTripletLoss(model)": _GROUPS,
    "BatchSemiHardTripletLoss(model)": _GROUPS,
    "MSELoss(model)": _TEACHER,
    "MarginMSELoss(model)": _MARGINS,
    "DistillKLDivLoss(model)": _LIST,
    "MatryoshkaLoss(model, losses.MultipleNegativesRankingLoss(model), [16, 8, 4])": _PAIR,
    "MatryoshkaLoss(model, losses.CoSENTLoss(model), [16, 8])": _SCORED,
}
# Three epochs of one batch, so that chance has no part in it: the vectors of the trained models are compared, without
# their mean. A shift of all vectors changes no Euclidean distance, so its gradient is rounding, which Adam enlarges.
SLOW: dict[str, dict[str, str]] = {
    "several processes": _snippets(
        "",
        """
# encode with a pool
pool = model.start_multi_process_pool(["cpu"])
result = model.encode(texts, pool=pool, chunk_size=3)
model.stop_multi_process_pool(pool)
""",
    ),
    "losses": {loss: _TRAINED.replace("{}", data, 1).replace("{}", loss) for loss, data in _LOSSES.items()},
    "training": _snippets(
        "import torch\ntorch.manual_seed(0)\n",
        """
# fit
from torch.utils.data import DataLoader
from sentence_transformers import InputExample, losses
examples = [InputExample(texts=list(row[:2]), label=score) for row, score in zip(rows, scores)]
loader = DataLoader(examples, shuffle=True, batch_size=6)
model.fit(train_objectives=[(loader, losses.CosineSimilarityLoss(model))], epochs=3, warmup_steps=0)
result = model.encode(texts)

# fit with triplets
from torch.utils.data import DataLoader
from sentence_transformers import InputExample, losses
loader = DataLoader([InputExample(texts=list(row)) for row in rows], shuffle=True, batch_size=6)
objective = (loader, losses.TripletLoss(model=model))
model.fit([objective], epochs=2, warmup_steps=0, optimizer_params={"lr": 1e-4}, show_progress_bar=False)
result = centred(model.encode(texts))

# evaluator of the trainer
from datasets import Dataset
from sentence_transformers import SentenceTransformerTrainer, evaluation, losses
data = Dataset.from_dict({"a": [row[0] for row in rows], "b": [row[1] for row in rows], "score": scores})
dev = evaluation.EmbeddingSimilarityEvaluator(data["a"], data["b"], data["score"], name="dev")
trainer = SentenceTransformerTrainer(model, train_dataset=data, loss=losses.CoSENTLoss(model), evaluator=dev)
result = trainer.evaluate()["eval_dev_spearman_cosine"]

# CrossEncoderTrainer
from datasets import Dataset
from sentence_transformers import CrossEncoder, CrossEncoderTrainer, CrossEncoderTrainingArguments
from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss
scorer = CrossEncoder(scorer_folder, device="cpu")
data = Dataset.from_dict({"a": [row[0] for row in rows], "b": [row[1] for row in rows], "label": [1, 0, 1, 0, 1, 1]})
args = CrossEncoderTrainingArguments(
    output_dir=new, num_train_epochs=2, per_device_train_batch_size=6, learning_rate=1e-4, report_to="none",
    save_strategy="no", disable_tqdm=True,
)
CrossEncoderTrainer(scorer, args, train_dataset=data, loss=BinaryCrossEntropyLoss(scorer)).train()
result = scorer.predict([row[:2] for row in rows])
""",
    ),
}

# Those whose results differ, and why.
DIFFERENT: dict[str, str] = {
    "pairwise_angle_sim": "the angle is computed inside ``AnglELoss``, and there is no function for it",
    "quantize_embeddings to uint8": "int8 takes as many bytes and has the same precision",
}
