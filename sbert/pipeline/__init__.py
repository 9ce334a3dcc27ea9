"""From texts to vectors: tokenise, plan batches, run them, put the vectors where they belong."""
