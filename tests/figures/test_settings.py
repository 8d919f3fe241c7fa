"""Settings of figures that are changed from outside."""

from typing import Any

import pytest

from stepwell._util.errors import InvalidInput
from stepwell.cli._reproduce import parsed_changes
from stepwell.experiments._flags import parsed
from stepwell.figures import FIGURES, Claim, Known, Origin, SeedWords, figure, select
from stepwell.figures._figure import _read


def names_of(name: str) -> list[str]:
    """The settings of a figure, from the message that lists them."""
    with pytest.raises(InvalidInput, match=f"{name} has no setting nothing; its settings are") as caught:
        figure(name).with_changes({"nothing": "1"})
    return str(caught.value).split("its settings are ")[1].split(", ")


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_settings_and_says_which(name: str):
    assert len(names_of(name)) > 1


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("name", ["linear/fig1", "linear/fig3", "linear/fig14"])
def test_published_runs_get_the_context(name: str, quick: bool):
    """These train an experiment, which has it in its task."""
    changed = figure(name).with_changes({"context": "60"})
    assert changed.changes == {"context": 60}
    settings = changed.at(quick)
    shown = changed.described(settings)
    assert settings.experiment.build().task.context.counts == (60,)
    assert parsed(shown["command"].split()[2:]) == settings.experiment
    assert shown["context length N"] == 60 and figure(name).paper_settings["context length N"] == 31
    assert "--context" not in figure(name).described(figure(name).at(quick))["command"]


def test_what_is_derived_follows_and_the_figure_itself_stays():
    unchanged = figure("linear/fig3")
    changed = unchanged.with_changes({"context": 60, "seeds": SeedWords(["20:40"])})
    assert changed.settings.unit == pytest.approx(unchanged.settings.unit * (60 / 31) ** (2 / 3))
    assert changed.at(True).seeds == changed.at(False).seeds == tuple(range(20, 40))
    assert figure("linear/fig3").settings == unchanged.settings and unchanged.settings.seeds[0] == 500


LEFT_OUT = "one left out"
VALUES = {
    "integer": ("linear/conservation", "heads", "2", 2),
    "number": ("linear/conservation", "init", "1", 1.0),
    "several": ("linear/conservation", "rates", "0.1,0.05", (0.1, 0.05)),
    "one of several": ("linear/conservation", "rates", "0.1", (0.1,)),
    "range": ("linear/fig6", "seeds", "5:8", (5, 6, 7)),
    "switch": ("linear/fig6", "every_scale", "false", False),
    "none": ("linear/fig3", "sequences", "none", None),
    "pairs": ("softmax/fig5", "gains", "((50, 500),)", ((50, 500),)),
    "several texts": ("softmax/single-head", "instances", "one left out, two left out", (LEFT_OUT, "two left out")),
    "text": ("linear/fig5", "precision", "float64", "float64"),
    "seeds by number": ("linear/fig6", "seeds", SeedWords(["2"]), (100, 101)),
    "seeds by name": ("linear/fig6", "seeds", SeedWords(["7", "3"]), (7, 3)),
    "seeds counted": ("linear/fig4", "seeds", SeedWords(["5"]), 5),
    "of the figure, not its helper": ("linear/fig11", "seeds", SeedWords(["20:22"]), (20, 21)),
}


@pytest.mark.parametrize("name, setting, text, value", VALUES.values(), ids=VALUES)
def test_values(name: str, setting: str, text: Any, value: Any):
    changed = figure(name).with_changes({setting: text}).changes
    assert changed == {setting: value} and type(changed[setting]) is type(value)


REFUSED = {
    "text": ("linear/conservation", "heads", "many", "an integer"),
    "fraction": ("linear/conservation", "heads", "1.5", "an integer"),
    "switch": ("linear/fig6", "every_scale", "3", "true or false"),
    "nothing": ("linear/conservation", "heads", "none", "an integer"),
    "list of texts": ("linear/conservation", "rates", "fast,slow", "several"),
    "range for a number": ("linear/conservation", "heads", "2:4", "an integer"),
    "listed seeds where they are counted": ("linear/fig4", "seeds", SeedWords(["2:4"]), "counts its seeds"),
    "what no text can be": ("linear/landscape", "searched", "1", "it must be several"),
}


@pytest.mark.parametrize("name, setting, text, message", REFUSED.values(), ids=REFUSED)
def test_a_value_of_another_kind_is_refused(name: str, setting: str, text: Any, message: str):
    with pytest.raises(InvalidInput, match=message) as caught:
        figure(name).with_changes({setting: text})
    assert str(caught.value).startswith(name) and "\n" not in str(caught.value)
    assert not figure(name).with_changes({}).changes


@pytest.mark.parametrize("text", ["__import__('os')", "[" * 5000, "1 +", "a b"])
def test_a_text_is_read_and_not_run(text: str):
    assert _read(text) == text


@pytest.mark.parametrize("words", [["context"], ["=3"], ["a b=3"], ["context="], ["context=1", "context=2"]])
def test_words_that_are_no_settings(words: list[str]):
    with pytest.raises(InvalidInput, match="--set"):
        parsed_changes(words)


def claim(measured: float, *, known: Known | None = None, **options: bool) -> Claim:
    numbers: Any = {"predicted": 1, "measured": measured, "tolerance": 0.1, "basis": "b", "known": known}
    return Origin("paper", "s", **options).close("linear/fig1/one", "is one", **numbers)


def test_claims_at_other_settings():
    known = Known("why", "where")
    published = claim(2.0, only_published=True)
    assert published.unexpected(False) and not published.unexpected(False, ["context"])
    assert not published.judged(["seeds", "context"]) and published.judged(["seeds"]) and published.judged()
    assert published.unexpected(False, ["flow_seeds"])
    assert claim(2.0).unexpected(False, ["context"]) and not claim(2.0, known=known).unexpected(False, ["context"])
    assert claim(1.0, known=known).unexpected(False) and not claim(1.0, known=known).unexpected(False, ["context"])


def test_a_figure_without_its_paper():
    assert select(["fig14"]) == ["linear/fig14"] and select(["allocation"]) == ["softmax/allocation"]
    with pytest.raises(InvalidInput, match="linear/fig3 or softmax/fig3"):
        select(["fig3"])
    with pytest.raises(InvalidInput, match="there is no target"):
        select([""])
