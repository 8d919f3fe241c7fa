"""Distributions over sequences, their samples and their closed-form moments."""

from ._abstract_task import BLOCK as BLOCK
from ._abstract_task import AbstractTask as AbstractTask
from ._abstract_task import PopulationMoments as PopulationMoments
from ._abstract_task import assemble as assemble
from ._batch import Batch as Batch
from ._batch import FeatureBatch as FeatureBatch
from ._batch import concatenate as concatenate
from ._batch import prefix as prefix
from ._context_lengths import ContextLengths as ContextLengths
from ._context_lengths import attention_scale as attention_scale
from ._covariance import covariance as covariance
from ._covariance import published_covariance as published_covariance
from ._covariance import random_rotation as random_rotation
from ._gaussian import AbstractGaussianTask as AbstractGaussianTask
from ._mixture import InContextInWeightMixture as InContextInWeightMixture
from ._multi_task import MultiTaskRegression as MultiTaskRegression
from ._nonlinear import SingleIndexRegression as SingleIndexRegression
from ._population_moments import check_moments as check_moments
from ._population_moments import population_moments as population_moments
from ._regression import InContextRegression as InContextRegression
from ._sampler import SamplerTask as SamplerTask
