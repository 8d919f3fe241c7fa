"""Training Dynamics of In-Context Learning in Linear Attention, figure by figure."""
