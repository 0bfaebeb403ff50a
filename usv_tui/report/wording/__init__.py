"""All words: the one place where a code becomes a sentence."""
