"""Pictures: training curves, similarities of texts, and maps of a corpus."""

from sbert.visualization.map_page import map_page
from sbert.visualization.plots import corpus_map, similarity_heatmap, training_curves

__all__ = ["corpus_map", "map_page", "similarity_heatmap", "training_curves"]
