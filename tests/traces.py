"""Programs traced under one name are not used under another.

So a test that changes what is traced (kernels, thresholds) need not clear JAX's caches, after which all other tests
would trace and lower their programs anew. The name is that of a thread: another one has the usual programs.
"""

import jax

traced_as = jax.make_user_context("as usual")
"""`with traced_as("without kernels"):` …"""
