"""Static evaluation of bash scripts on a full grammar (tree-sitter-bash), without running them."""
