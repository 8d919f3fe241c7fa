"""A process that computes for a local cluster: `python -m stepwell.sweeps._worker ADDRESS FOLDER CORE`.

It is started as a command and not forked or spawned, so that it needs nothing of the program that started it: neither
its main module, which may have no `if __name__ == "__main__"`, nor its threads. Its standard input is a pipe from that
program, and when that ends, for whatever reason, so does this.
"""

import asyncio
import os
import shutil
import signal
import sys
import threading
import time
from typing import NoReturn


def main(address: str, folder: str, core: int) -> None:
    """Work for the scheduler at `address`, on one core, with scratch files in `folder`, which goes with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program that started this one handles it
    parent, watcher = os.getppid(), threading.Thread(target=_end_with_parent, args=(folder,), daemon=True)
    watcher.start()
    if core >= 0:
        os.sched_setaffinity(0, {core})  # read by XLA, BLAS and the kernels when they start threads

    import logging

    from dask import config
    from distributed import Worker

    from stepwell._util.process import configure

    configure()
    from . import _compute  # noqa: F401  (JAX takes a second or two to import)

    logging.getLogger("distributed").setLevel(logging.CRITICAL)

    async def work() -> None:
        with config.set({"distributed.worker.profile.enabled": False}):
            options = {"nthreads": 1, "memory_limit": 0, "local_directory": folder, "death_timeout": 60}
            async with Worker(address, dashboard=False, dashboard_address="127.0.0.1:0", **options) as worker:
                await worker.finished()

    try:
        asyncio.run(work())
    finally:
        if os.getppid() != parent:  # the scheduler went with the parent, and the watcher is still removing the folder
            watcher.join()


def _end_with_parent(folder: str) -> NoReturn:
    sys.stdin.buffer.read()
    for _ in range(100):  # the worker's own thread, and other workers, may still write into it
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.exists(folder):
            break
        time.sleep(0.05)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
