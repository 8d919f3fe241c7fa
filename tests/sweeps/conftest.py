"""One cluster for all tests of this folder that need no other."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stepwell.sweeps._cluster import Cluster, open_cluster


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    """Two local workers, which end with it."""
    with open_cluster(workers=2) as opened:
        yield opened
        workers = opened._workers
        assert workers is not None
    assert workers.processes and not any(Path(f"/proc/{process.pid}").exists() for process in workers.processes)
    assert not workers._folder.exists()
