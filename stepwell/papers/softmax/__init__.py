"""Training Dynamics of Multi-Head Softmax Attention for In-Context Learning (Chen et al., arXiv 2402.19442)."""
