"""What the program answers, written down: verdicts, arguments and the public surface, to compare two commits by."""
