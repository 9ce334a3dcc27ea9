"""Indexes that can be changed and saved: of vectors, of texts by BM25, and of documents by both."""
