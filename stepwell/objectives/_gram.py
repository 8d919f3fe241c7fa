"""The product of a matrix with its own transpose."""

import jax
import numpy as np
from jaxtyping import Array, Float

from stepwell import native


def gram(phi: Float[Array, "examples features"]) -> Float[Array, "features features"]:
    r"""$\sum_n \phi_n \phi_n^\top$, natively where it can be.

    The compiler does not know that the product is symmetric. It is slow too where the first factor is a transpose that
    it need not write down, so without a native pass it is made to.
    """
    kernel = native.kernel("gram", "double") if phi.dtype == np.float64 else None
    if kernel is None:
        return jax.lax.optimization_barrier(phi.T) @ phi
    size = phi.shape[1]
    return jax.ffi.ffi_call(kernel.target, jax.ShapeDtypeStruct((size, size), phi.dtype), vmap_method="sequential")(phi)
