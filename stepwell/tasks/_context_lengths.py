"""How many context pairs a sequence has: one number, or a distribution over numbers."""

from collections.abc import Iterable

import equinox as eqx
import numpy as np

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.memory import require_arrays
from stepwell._util.paper_time import attention_factor
from stepwell._util.types import Normalization


class ContextLengths(eqx.Module):
    r"""A distribution over context lengths, $\Pr(N = n) = \pi_n$.

    A sequence is drawn with as many pairs as the longest length needs. A loss over varying lengths is
    $\sum_n \pi_n L_n$, where $L_n$ uses the first n pairs as the context and the next token as the query.

    **Arguments:**

    - `counts`: the lengths, numbers of context pairs, each given once; one number for a single length.
    - `probabilities`: $\pi_n$ for each length, up to a common factor; by default all lengths are equally likely.

    **Example:**

    >>> lengths = sw.tasks.ContextLengths([5, 10], [3, 1])
    >>> lengths.probabilities, lengths.longest
    ((0.75, 0.25), 10)
    """

    counts: tuple[int, ...] = eqx.field(static=True)
    probabilities: tuple[float, ...] = eqx.field(static=True)

    @checked
    def __init__(self, counts: int | np.integer | Iterable[int], probabilities: Iterable[float] | None = None):
        listed = [counts] if isinstance(counts, int | np.integer) else list(counts)
        if not listed:
            raise InvalidInput("context lengths are empty; give at least one, for instance 31")
        self.counts = tuple(checks.whole("context length", n) for n in listed)
        if len(set(self.counts)) != len(self.counts):
            raise InvalidInput(f"context lengths {self.counts} repeat one; add up their probabilities instead")
        name = "probability of a context length"
        shares = [1.0] * len(listed) if probabilities is None else probabilities
        given = [checks.number(name, share, least=0.0) for share in shares]
        if len(given) != len(self.counts):
            raise InvalidInput(f"{len(given)} probabilities for {len(self.counts)} context lengths; give one for each")
        total = sum(given)
        if total <= 0:
            raise InvalidInput("probabilities of context lengths add up to 0; at least one must be positive")
        self.probabilities = tuple(p / total for p in given)

    @classmethod
    @checked
    def uniform(cls, longest: int) -> "ContextLengths":
        """Return all lengths from 1 up to the longest, equally likely: the published script's `--vary_len`."""
        longest = checks.whole("longest context length", longest)
        require_arrays((8, longest), what=f"{longest} context lengths", instead="take a shorter one")
        return cls(range(1, longest + 1))

    @property
    def longest(self) -> int:
        return max(self.counts)

    @property
    def tokens(self) -> int:
        """Tokens a sequence must have: the longest context and a query."""
        return self.longest + 1

    @property
    def fixed(self) -> bool:
        """Whether there is only one length."""
        return len(self.counts) == 1


def as_lengths(lengths: "int | ContextLengths") -> ContextLengths:
    """The distribution itself, or that of one context length given as a number."""
    return lengths if isinstance(lengths, ContextLengths) else ContextLengths(checks.whole("context length", lengths))


@checked
def attention_scale(normalization: Normalization, length):
    """Return the factor by which attention multiplies a sum over tokens.

    **Arguments:**

    - `normalization`: "1/N" divides by the number of context pairs, "1/tokens" by the number of tokens, which is one
      more, and "none" by nothing.
    - `length`: N, the number of context pairs; a number or an array.

    **Returns:** the factor, of the shape of `length`; for "none" the number 1.

    **Example:**

    >>> sw.tasks.attention_scale("1/N", 4), sw.tasks.attention_scale("1/tokens", 4)
    (0.25, 0.2)
    """
    return attention_factor(normalization, length)
