"""Training Dynamics of In-Context Learning in Linear Attention (Zhang et al., arXiv 2501.16265)."""
