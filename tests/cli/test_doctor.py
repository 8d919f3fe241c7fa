"""`stepwell doctor` says what is used and why not."""

import json
import re
import sys
from pathlib import Path

import pytest

import stepwell
from stepwell.cli import main
from stepwell.native import KERNELS, _kernels


@pytest.fixture(autouse=True)
def other_kernels():
    """What is known of the kernels is forgotten before and after a test, and the cache is used again."""
    _kernels.state.cache_clear()
    yield
    _kernels.state.cache_clear()
    stepwell.configure()


def test_all_in_use(capsys: pytest.CaptureFixture[str]):
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {kernel["name"] for kernel in found["kernels"]} == set(KERNELS)
    assert all(kernel["used"] and kernel["bytes"] in (16, 32, 64) for kernel in found["kernels"])
    assert found["versions"]["jax"] and found["system"]["cores"] >= 1 and found["system"]["free_memory"] > 0
    assert Path(found["cache"]["folder"]).is_dir() and found["cache"]["files"] > 0 and found["cache"]["bytes"] > 0
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    for word in ("versions", "processor", "cores", "memory", "cache", "kernels", "-bit vectors"):
        assert word in text
    assert "NOT USED" not in text


def test_why_one_is_not(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setenv("STEPWELL_NATIVE", "off")
    assert main(["doctor"]) == 0
    out, err = capsys.readouterr()
    assert out.count("NOT USED: STEPWELL_NATIVE is off") == sum(map(len, KERNELS.values())) and err == ""
    _kernels.state.cache_clear()
    monkeypatch.delenv("STEPWELL_NATIVE")
    monkeypatch.setenv("CC", f"{sys.executable} -S -c \"import sys; sys.exit('a word of the compiler')\"")
    monkeypatch.setenv("STEPWELL_CACHE", "off")
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"normals +double +NOT USED: .* ended with status 1: a word of the compiler", out)
    assert "cache      none: STEPWELL_CACHE is off" in out
    _kernels.state.cache_clear()
    monkeypatch.setenv("STEPWELL_NATIVE", "fast")
    assert main(["doctor"]) == 2
    assert capsys.readouterr().err.startswith("stepwell doctor: STEPWELL_NATIVE is 'fast'; it must be")
