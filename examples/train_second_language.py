"""Teach a model a second language with translations: its vector of a translation becomes that of the English sentence.

python examples/train_second_language.py [--model MODEL] [--data FOLDER] [--rows N] [--output FOLDER]

FOLDER/parallel contains junior_high_evaluation_koen.tsv and FOLDER/stsb and FOLDER/korean the files of STSb and KorSTS,
which are translations of each other, row by row: their training files are trained on, their test files measured.
FOLDER/parallel/tatoeba_eng_kor.tsv, in the columns eng and kor, is measured, too. The student starts as a copy of its
teacher, and a warning tells how many Korean words it cannot read: a multilingual model is a better start.

Reimers and Gurevych, 2020. https://arxiv.org/abs/2004.09813
"""

from korean_rows import korean_pairs, read_translations, translations
from shared import arguments, load, read, scored_pairs

from sbert import Trainer, TrainingConfig
from sbert.evaluation import MSEEvaluator, SequentialEvaluator, SimilarityEvaluator, TranslationEvaluator
from sbert.losses import MSELoss

options = arguments(__doc__)
if options.data:
    train, held_out = read_translations(options), read(options, "parallel/tatoeba_eng_kor.tsv", ["eng", "kor"])
    files = {"eng": "stsb/test.tsv", "kor": "korean/korsts_test.tsv"}
    scored = {
        name: read(options, file, ["sentence1", "sentence2"], "score", scale=(0, 5)) for name, file in files.items()
    }
else:
    train, held_out = translations(256, seed=0), translations(100, seed=1, held_out=True)
    scored = {"eng": scored_pairs(200, seed=2, held_out=True), "kor": korean_pairs(200, seed=2, held_out=True)}

teacher, student = load(options.model), load(options.model)
english, korean = ([row[name] for row in held_out] for name in ("eng", "kor"))
# Whether the translation of a sentence is the nearest of all, and how far its vector is from the teacher's.
evaluator = SequentialEvaluator(
    {
        "found": TranslationEvaluator(english, korean),
        "eng": MSEEvaluator(english, teacher, english),
        "kor": MSEEvaluator(english, teacher, korean),
        **{
            f"sts_{name}": SimilarityEvaluator(
                *([row[key] for row in rows] for key in ("sentence1", "sentence2", "label"))
            )
            for name, rows in scored.items()
        },
    }
)
before = evaluator(student)

# A row is a text and the teacher's vector: of the English sentence, for both languages.
vectors = teacher.encode([row["eng"] for row in train])
rows = [(row[name], vector) for row, vector in zip(train, vectors, strict=True) for name in ("eng", "kor")]
config = TrainingConfig(
    output=options.output,
    epochs=2 if options.data else 5,
    batch_size=32,
    learning_rate=2e-4 if options.data else 1e-3,  # Few steps need a high learning rate.
)
Trainer(student, rows, MSELoss(), config).fit()

after = evaluator(student)
FIGURES = {
    "found_source_to_target": "Korean found by its English sentence",
    "found_target_to_source": "English found by its Korean sentence",
    "eng_cosine": "English, cosine with the teacher's vector",
    "kor_cosine": "Korean, cosine with the teacher's vector",
    "sts_eng_spearman": "English, Spearman of scored pairs",
    "sts_kor_spearman": "Korean, Spearman of scored pairs",
}
print(f"{len(train)} translations:")
for name, about in FIGURES.items():
    print(f"{about}: {before[name]:.3f} before, {after[name]:.3f} after")
