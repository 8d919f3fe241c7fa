"""What is trained: attention in its several forms, and the networks it is equal to."""

from ._attention import AbstractAttention as AbstractAttention
from ._check_form import check_form as check_form
from ._check_form import similar as similar
from ._class_of import class_of as class_of
from ._convolutional import ConvolutionalAttention as ConvolutionalAttention
from ._cubic_mlp import CubicMLP as CubicMLP
from ._decomposable import Decomposition as Decomposition
from ._decomposable import decomposable as decomposable
from ._decomposable import decompose as decompose
from ._forms import as_separate as as_separate
from ._forms import form_advice as form_advice
from ._forms import form_of as form_of
from ._forms import is_attention as is_attention
from ._forms import is_cubic as is_cubic
from ._forms import is_proved as is_proved
from ._forms import is_separate as is_separate
from ._forms import is_spectral as is_spectral
from ._forms import map_rank as map_rank
from ._merged import MergedAttention as MergedAttention
from ._model import AbstractCubicModel as AbstractCubicModel
from ._model import AbstractModel as AbstractModel
from ._model import Form as Form
from ._multihead import MultiHeadAttention as MultiHeadAttention
from ._separate import SeparateAttention as SeparateAttention
from ._spectral import SpectralAttention as SpectralAttention
from ._weights import check_weights as check_weights
