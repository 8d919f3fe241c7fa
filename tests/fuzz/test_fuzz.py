"""Some dozens of random cases; `python tests/fuzz/fuzz.py` goes on."""

import pytest
from cases import Case, damaged, make
from fuzz import judge_all
from oracle import Ending, complaint

SEED = 0
COUNT = 80


def test_no_case_ends_badly():
    wrong = {f"{SEED}:{number}": wrong for number, wrong in judge_all(SEED, range(COUNT), 300.0) if wrong}
    assert wrong == {}


def test_a_case_is_made_of_two_numbers():
    assert [make(1, number) for number in range(40)] == [make(1, number) for number in range(40)]
    assert len({str(make(1, number)) for number in range(40)}) > 30


@pytest.mark.parametrize(
    ("words", "ending", "wrong"),
    [
        (["predict"], Ending(2, "", "stepwell predict: no"), ""),
        (["predict"], Ending(7, "", ""), "exit status 7"),
        (["predict"], Ending(2, "", "Traceback (most recent call last)"), "a traceback"),
        (["predict"], Ending(2, "", ""), "bad usage without a message"),
        (["predict", "--json"], Ending(0, '{"a": NaN}', ""), "no JSON document where that was asked for"),
        (["train"], Ending(2, "", "stepwell train: " + 3000 * "x"), "a message of more than 2000 letters"),
    ],
)
def test_what_is_wrong_is_noticed(words: list[str], ending: Ending, wrong: str):
    assert complaint(Case(words, {}), ending) == wrong


def test_damage_is_damage():
    import random

    data = bytes(range(256)) * 40
    assert sum(damaged(data, random.Random(seed)) != data for seed in range(100)) >= 99
