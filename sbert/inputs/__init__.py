"""What callers pass: arguments, texts, vectors, prompts and devices, checked before anything is computed."""
