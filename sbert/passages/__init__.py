"""Passages of long documents: where to cut, and vectors of passages within their documents."""
