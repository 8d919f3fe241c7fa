"""Compiled programs of JAX, kept with a checksum: a damaged one is compiled anew instead of loaded.

JAX reads a program from its cache without a check. It may have been cut short by a full disk or a killed process,
and with some compressors a flipped bit goes unnoticed too. What JAX cannot read it compiles anew at every start, and
never replaces. Here every entry ends with its own digest, and one that does not fit, or that another user made, is
removed.
"""

import hashlib
from pathlib import Path
from typing import Any

from .cache import folder_name, untrusted

_DIGEST = hashlib.sha256().digest_size


def check_programs() -> None:
    """Keep checksums of compiled programs in our own cache folder from now on.

    If this version of JAX keeps programs in another way, nothing is changed.
    """
    try:
        from jax._src import compilation_cache
        from jax._src.lru_cache import LRUCache
    except ImportError:
        return

    class Checked(LRUCache):
        """JAX's cache of files, with a digest at the end of each; a folder that the user chose stays as JAX has it."""

        def __init__(self, path: str, **options: Any):
            super().__init__(path, **options)
            self.ours = Path(path).name == folder_name()

        def get(self, key: str) -> bytes | None:
            stored = super().get(key)
            if stored is None or not self.ours:
                return stored
            value, digest = stored[:-_DIGEST], stored[-_DIGEST:]
            if untrusted(Path(self.path) / f"{key}-cache") is None and hashlib.sha256(value).digest() == digest:
                return value
            for file in self.path.glob(f"{key}-*"):
                file.unlink(missing_ok=True)  # else what is compiled now would not be kept
            return None

        def put(self, key: str, value: bytes) -> None:
            if not self.ours:
                super().put(key, value)
                return
            super().put(key, value + hashlib.sha256(value).digest())
            (Path(self.path) / f"{key}-cache").chmod(0o600)  # `untrusted` else, where files are made for a group

    known: Any = compilation_cache
    if getattr(known, "LRUCache", None) is LRUCache:
        known.LRUCache = Checked
