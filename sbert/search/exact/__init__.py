"""Exact comparison of vectors in blocks: search, pairs, groups, hard negatives."""
