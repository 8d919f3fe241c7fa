"""Which levels a processor has."""

import pytest

from stepwell.native import _processor

V2 = "fpu sse sse2 ssse3 sse4_1 sse4_2 popcnt cx16"
V3 = f"{V2} avx avx2 bmi1 bmi2 f16c fma movbe"
V4 = f"{V3} avx512f avx512bw avx512cd avx512dq avx512vl"


@pytest.mark.parametrize(
    ("machine", "flags", "expected"),
    [
        ("x86_64", V4, ("avx512", "avx2", "baseline")),
        ("AMD64", V3, ("avx2", "baseline")),
        ("x86_64", V2, ("baseline",)),
        ("x86_64", f"{V2} avx512f avx2", ("baseline",)),  # a part of a level is none: the compiler uses all of it
        ("x86_64", "", ("baseline",)),
        ("aarch64", "asimd", ("baseline",)),
        ("arm64", V4, ("baseline",)),
    ],
)
def test_levels(machine: str, flags: str, expected: tuple[str, ...], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_processor.platform, "machine", lambda: machine)
    monkeypatch.setattr(_processor, "_described", lambda entry: flags if entry == "flags" else "a processor")
    assert _processor.levels() == expected
    assert _processor.processor_name() == "a processor"
    is_x86 = machine in ("x86_64", "AMD64")
    assert _processor.options(expected[0]) == (_processor.LEVELS[expected[0]] if is_x86 else ())
