"""A minimal BERT and its tokenizer, which load without the transformers library."""
