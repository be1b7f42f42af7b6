"""Which existing files and folders a verb may replace, and how they are replaced without losing anything.

Own code: libraries for atomic writing replace whatever is there. The question here comes before that: is what is there
of the same kind, or somebody's work?
"""
