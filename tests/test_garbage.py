"""How often Python looks for garbage."""

import gc

import pytest

from stepwell._garbage import SELDOM, collected_seldom


def test_it_is_as_before_afterwards():
    before = gc.get_threshold()
    with pytest.raises(RuntimeError), collected_seldom():
        assert gc.get_threshold()[0] == SELDOM > before[0]
        raise RuntimeError
    assert gc.get_threshold() == before
