"""A full Native Sparse Attention model and trainer (arXiv 2502.11089): the patient."""

__version__ = "0.1.0"
