"""Distil a model: keep the first layers of a BERT, and train them to produce the vectors of the whole model.

python examples/distil.py [--model MODEL] [--data FOLDER] [--rows N] [--output FOLDER]

FOLDER/nli contains snli_train_subset.tsv.gz, FOLDER/stsb dev.tsv.
"""

import copy

from shared import arguments, load, read, scored_pairs

from sbert import SentenceEncoder, Trainer, TrainingConfig
from sbert.evaluation import SimilarityEvaluator
from sbert.losses import MSELoss

LAYERS = 2
COLUMNS = ["sentence1", "sentence2"]


def first_layers(model, count):
    """A copy of a model with only the first ``count`` layers of its transformer."""
    small = SentenceEncoder(*copy.deepcopy(list(model)), device=model.device)
    transformer = small[0].auto_model
    transformer.encoder.layer = transformer.encoder.layer[:count]
    transformer.config.num_hidden_layers = count
    return small


options = arguments(__doc__)
if options.data:
    rows = read(options, "nli/snli_train_subset.tsv.gz", ["premise", "hypothesis"])
    pairs = read(options, "stsb/dev.tsv", COLUMNS, "score")
else:
    rows, pairs = scored_pairs(400, seed=0), scored_pairs(150, seed=1, held_out=True)
texts = sorted({text for row in rows for text in row.values() if isinstance(text, str)})
held_out = [row["sentence1"] for row in pairs]

teacher = load(options.model)
student = first_layers(teacher, LAYERS)
similarity = SimilarityEvaluator(*([row[name] for row in pairs] for name in (*COLUMNS, "label")))


def closeness(model):
    """The mean cosine between the model's and the teacher's vectors of held-out sentences."""
    vectors = (encoder.encode(held_out, normalize_embeddings=True) for encoder in (model, teacher))
    return float(sum(one * two for one, two in zip(*vectors, strict=True)).sum() / len(held_out))


before = closeness(student), similarity(student)["spearman"]
config = TrainingConfig(output=options.output, epochs=1 if options.data else 2, batch_size=32, learning_rate=3e-4)
# A row is a text and the teacher's vector.
Trainer(student, zip(texts, teacher.encode(texts), strict=True), MSELoss(), config, evaluator=closeness).fit()

count = [sum(parameter.numel() for parameter in model.parameters()) for model in (teacher, student)]
print(f"parameters: {count[0]:,} of the teacher, {count[1]:,} of the student")
print(f"cosine with the teacher's vectors: {before[0]:.3f} before, {closeness(student):.3f} after {len(texts)} texts")
print(f"Spearman: {before[1]:.3f} before, {similarity(student)['spearman']:.3f} after;", end=" ")
print(f"the teacher's is {similarity(teacher)['spearman']:.3f}")
