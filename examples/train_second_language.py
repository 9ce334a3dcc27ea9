"""Teach a model a second language with translations: its vector of a translation becomes that of the English sentence.

python examples/train_second_language.py [--model MODEL] [--data FOLDER] [--rows N] [--output FOLDER]

FOLDER/parallel contains junior_high_evaluation_koen.tsv to train on, and tatoeba_eng_kor.tsv to measure with, in the
columns eng and kor. The student starts as a copy of its teacher, and a warning tells how many Korean words it cannot
read: a multilingual model is a better start.

Reimers and Gurevych, 2020. https://arxiv.org/abs/2004.09813
"""

from korean_rows import translations
from shared import arguments, load, read

from sbert import Trainer, TrainingConfig
from sbert.evaluation import MSEEvaluator, SequentialEvaluator, TranslationEvaluator
from sbert.losses import MSELoss

options = arguments(__doc__)
if options.data:
    files = ("parallel/junior_high_evaluation_koen.tsv", "parallel/tatoeba_eng_kor.tsv")
    train, held_out = (read(options, file, ["eng", "kor"]) for file in files)
else:
    train, held_out = translations(256, seed=0), translations(100, seed=1, held_out=True)

teacher, student = load(options.model), load(options.model)
english, korean = ([row[name] for row in held_out] for name in ("eng", "kor"))
# Whether the translation of a sentence is the nearest of all, and how far it is from the teacher's vector.
evaluator = SequentialEvaluator(
    {"found": TranslationEvaluator(english, korean), "teacher": MSEEvaluator(english, teacher, korean)}
)
before = evaluator(student)

# A row is a text and the teacher's vector: of the English sentence, for both languages.
vectors = teacher.encode([row["eng"] for row in train])
rows = [(row[name], vector) for row, vector in zip(train, vectors, strict=True) for name in ("eng", "kor")]
config = TrainingConfig(
    output=options.output, epochs=5, batch_size=32, learning_rate=1e-3 if not options.data else 2e-4
)
Trainer(student, rows, MSELoss(), config, evaluator=evaluator).fit()

after = evaluator(student)
for name, about in (
    ("found_mean_accuracy", "translations found"),
    ("teacher_cosine", "cosine with the teacher's vector"),
):
    print(f"{about}: {before[name]:.3f} before, {after[name]:.3f} after {len(train)} translations")
