"""A user's own file."""

from pathlib import Path

import pytest

from stepwell.experiments import load_kinds

OWN = '''"""Gated attention on sparse task vectors."""

from typing import Annotated

import jax

import stepwell as sw
from stepwell.experiments import Field, register


@register("task", "sparse")
def sparse(
    key,
    *,
    dim: Annotated[int, Field("dimension of an input", symbol="D", least=1, most=6)] = 2,
    context: Annotated[int, Field("context pairs", symbol="N", least=1, most=50)] = 9,
    sparsity: Annotated[float, Field("fraction of small task eigenvalues", least=0.1, most=0.9)] = 0.5,
):
    """Regression whose task vectors are nearly sparse."""
    small = round(sparsity * dim)
    sizes = sw.tasks.covariance([1.0] * (dim - small) + [0.01] * small)
    return sw.tasks.InContextRegression(sw.tasks.covariance([1.0] * dim), context, task_covariance=sizes)


@register("model", "gated", follows="sampled")
def gated(task, key, *, gate: Annotated[float, Field("opening of the gate", symbol="g", least=0.0, most=1.0)] = 0.5):
    """Attention whose weights are multiplied by a gate."""
    model = sw.models.MultiHeadAttention.random(dim=task.dim, outputs=task.outputs, heads=2, scale=0.5, key=key)
    return jax.tree.map(lambda weight: gate * weight, model)
'''


@pytest.fixture(scope="session")
def own_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("own") / "explorer_own_lab.py"
    path.write_text(OWN)
    return path


@pytest.fixture
def own_kinds(own_file: Path) -> Path:
    """The file with its kinds registered, for one test."""
    load_kinds(own_file)
    return own_file
