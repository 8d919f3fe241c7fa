"""Programs traced under one name are not used under another.

So a test that changes what is traced (kernels, thresholds) need not clear JAX's caches, after which all other tests
would trace and lower their programs anew.
"""

import jax

USUAL = "as usual"
traced_as = jax.make_user_context(USUAL)
"""`with traced_as("without kernels"):` …"""
