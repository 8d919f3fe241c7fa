"""What is trained: attention in its several forms, and the networks it is equal to."""

from ._attention import AbstractAttention as AbstractAttention
from ._convolutional import ConvolutionalAttention as ConvolutionalAttention
from ._cubic_mlp import CubicMLP as CubicMLP
from ._merged import MergedAttention as MergedAttention
from ._model import AbstractCubicModel as AbstractCubicModel
from ._model import AbstractModel as AbstractModel
from ._multihead import MultiHeadAttention as MultiHeadAttention
from ._separate import SeparateAttention as SeparateAttention
