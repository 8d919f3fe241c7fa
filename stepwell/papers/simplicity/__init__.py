"""Saddle-to-Saddle Dynamics Explains A Simplicity Bias Across Neural Network Architectures (Zhang et al., arXiv 2512.20607)."""  # noqa: E501
