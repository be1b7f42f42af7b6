"""Bash scripts read without running them: a real grammar (tree-sitter-bash), evaluated statically."""
