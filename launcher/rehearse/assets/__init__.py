"""The text and the tokenizer that a rehearsal uses when it is given no data."""
