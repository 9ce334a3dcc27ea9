"""What callers pass: arguments, texts, vectors, prompts and devices, checked before anything is computed.

An error names the row or the argument, says what was given and what was expected, and how to correct it:

>>> from sbert.inputs.texts import texts_of
>>> texts_of(["A cat sleeps.", None], "sentences")
Traceback (most recent call last):
    ...
TypeError: sentences[1] is of type NoneType (None); pass only str
"""
