"""`python -m stepwell.native`: build every kernel now rather than at first use."""

import sys
from concurrent.futures import ThreadPoolExecutor

from stepwell._util.cache import cache

from ._compile import BuildFailed, library
from ._kernels import KERNELS, SOURCES
from ._processor import cores, levels


def _build(name: str, element: str) -> str:
    """The compiler's message if it fails."""
    try:
        with library(SOURCES / f"{name}.c", element, levels()[0]):
            return ""
    except BuildFailed as error:
        return str(error)


def main() -> None:
    if cache().folder is None:
        print(f"kernels will be built when they are first used: {cache().reason}")
        return
    wanted = [(name, element) for name, elements in KERNELS.items() for element in elements]
    with ThreadPoolExecutor(cores()) as threads:
        failures = list(filter(None, threads.map(lambda each: _build(*each), wanted)))
    if failures:
        print(f"{len(failures)} of {len(wanted)} kernels cannot be built; plain JAX is used instead, which is slower.")
        print(failures[0])


if __name__ == "__main__":
    sys.exit(main())
