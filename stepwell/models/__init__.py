"""What is trained: attention in its several forms, and the networks it is equal to."""

from ._attention import AbstractAttention as AbstractAttention
from ._convolutional import ConvolutionalAttention as ConvolutionalAttention
from ._cubic_mlp import CubicMLP as CubicMLP
from ._decomposable import Decomposition as Decomposition
from ._decomposable import decomposable as decomposable
from ._decomposable import decompose as decompose
from ._merged import MergedAttention as MergedAttention
from ._model import AbstractCubicModel as AbstractCubicModel
from ._model import AbstractModel as AbstractModel
from ._multihead import MultiHeadAttention as MultiHeadAttention
from ._separate import SeparateAttention as SeparateAttention
from ._spectral import SpectralAttention as SpectralAttention
