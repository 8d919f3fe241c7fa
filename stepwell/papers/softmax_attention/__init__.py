"""Training dynamics of multi-head softmax attention for in-context learning (arXiv 2402.19442)."""
