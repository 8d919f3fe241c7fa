"""The versions of the software that made a result."""

import functools
from importlib.metadata import PackageNotFoundError, version

from . import __version__


@functools.cache
def versions() -> dict[str, str]:
    """Versions of Stepwell and of the libraries that make its numbers; looked up once, since it takes a while."""
    numbers = {"stepwell": __version__}
    for name in ("jax", "jaxlib", "equinox", "diffrax", "optax", "numpy", "scipy", "xarray"):
        try:
            numbers[name] = version(name)
        except PackageNotFoundError:
            pass
    return numbers
