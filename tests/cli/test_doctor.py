"""`stepwell doctor` says what is used and why not."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stepwell.cli import main
from stepwell.native import KERNELS, _kernels


def doctor(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("JAX_")} | variables
    command = [sys.executable, "-m", "stepwell", "doctor", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


def test_all_in_use(capsys: pytest.CaptureFixture[str]):
    _kernels.state.cache_clear()
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


def test_why_one_is_not():
    done = doctor(STEPWELL_NATIVE="off")
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.count("NOT USED: STEPWELL_NATIVE is off") == sum(map(len, KERNELS.values()))
    broken = f"{sys.executable} -c \"import sys; sys.exit('a word of the compiler')\""
    done = doctor(CC=broken, STEPWELL_CACHE="off")
    assert done.returncode == 0 and done.stderr == ""
    assert re.search(r"normals +double +NOT USED: .* ended with status 1: a word of the compiler", done.stdout)
    assert "cache      none: STEPWELL_CACHE is off" in done.stdout
    done = doctor(STEPWELL_NATIVE="fast")
    assert done.returncode == 2 and done.stderr.startswith("stepwell doctor: STEPWELL_NATIVE is 'fast'; it must be")
