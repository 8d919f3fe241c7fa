"""Libraries of kernels: what one is named after, what is built, what is refused, what is said."""

from pathlib import Path

from stepwell.native._build import texts


def test_a_library_is_named_after_all_that_it_includes(tmp_path: Path):
    """Else a change in a header of a header would go unnoticed, and the old library would be taken."""
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "deep.h").write_text("deep")
    (tmp_path / "one.h").write_text('#include "inner/deep.h"\n#include "of/another/library.h"\n#include <math.h>\none')
    (tmp_path / "unused.h").write_text("unused")
    source = tmp_path / "a.c"
    source.write_text('#include "one.h"\n')
    assert [text.splitlines()[-1] for text in texts(source)] == ['#include "one.h"', "one", "deep"]
