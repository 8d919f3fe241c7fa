"""What a page is sent, and in which order what is computed: without a browser."""

import asyncio
import json
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from stepwell.experiments import SECTIONS, kinds
from stepwell.explorer._controls import HINTS, controls
from stepwell.explorer._engine import FIRST, REST, Engine, Turns
from stepwell.explorer._page import glossary, page
from stepwell.explorer._session import Session, packed
from stepwell.explorer._view import Cancelled


def unpacked(content: bytes) -> dict:
    (length,) = struct.unpack("<I", content[:4])
    head = json.loads(content[4 : 4 + length])
    assert (4 + length) % 8 == 0
    for name, (kind, shape, place) in head.get("arrays", {}).items():
        assert place % 8 == 0
        size = int(np.prod(shape))
        head["view"][name] = np.frombuffer(content, f"<{kind}", size, 4 + length + place).reshape(shape)
    return head


def test_a_message_has_its_arrays_and_texts():
    rng = np.random.default_rng(0)
    view = {"loss": rng.normal(size=5), "keys": rng.normal(size=(3, 2, 1, 3)), "caption": "λ < 1", "empty": np.zeros(0)}
    view["table"] = {"rows": [[1, np.float64(0.5), float("nan"), None, True]]}
    back = unpacked(packed({"number": 7, "view": view}))
    np.testing.assert_array_equal(back["view"]["loss"], view["loss"])
    np.testing.assert_array_equal(back["view"]["keys"], view["keys"].astype(np.float32))
    assert back["number"] == 7 and back["view"]["caption"] == "λ < 1" and back["view"]["empty"].size == 0
    assert back["view"]["table"]["rows"] == [[1, 0.5, None, None, True]]


class Page:
    """A page that only listens, and an engine whose work waits to be let go."""

    def __init__(self) -> None:
        self.computed: list[float] = []
        self.broken = False
        self.go = threading.Event()
        self.heads: list[dict] = []
        self.engine = Engine(self._compute, warm=False)
        self.session = Session(self._send, self.engine)

    def _compute(self, state, report, stop):
        self.computed.append(state.run.model.scale)
        if self.broken:
            raise ZeroDivisionError("division by zero")
        while not self.go.wait(0.005):
            if stop():
                raise Cancelled
        return {"time": np.arange(3.0), "loss": np.full(3, state.run.model.scale), "problems": {}}

    async def _send(self, content: bytes) -> None:
        self.heads.append(unpacked(content))

    def ask(self, number: int, changed: str | None = None, **words: str) -> None:
        self.session.ask(json.dumps({"number": number, "words": words, "changed": changed}))

    async def done(self, number: int) -> None:
        end = time.monotonic() + 30
        while not any(head["number"] == number and "done" in head for head in self.heads):
            assert time.monotonic() < end
            await asyncio.sleep(0.005)


def with_page(scenario) -> Page:
    async def run() -> Page:
        one = Page()
        await scenario(one)
        one.go.set()
        one.engine.close()
        return one

    with ThreadPoolExecutor(1) as thread:  # a loop of its own: Playwright has one in this thread
        return thread.submit(lambda: asyncio.run(run())).result()


def test_one_is_computed_one_waits_and_the_newest_wins():
    async def scenario(one: Page) -> None:
        for number in range(1, 6):
            one.ask(number, **{"model.scale": f"0.{number}"})
        one.go.set()
        await one.done(5)

    one = with_page(scenario)
    assert one.computed == [0.1, 0.5]
    assert [head["number"] for head in one.heads if "done" in head] == [1, 5]


def test_what_the_page_has_is_not_sent_again():
    async def scenario(one: Page) -> None:
        one.go.set()
        one.ask(1, **{"model.scale": "0.1", "b.model.scale": "0.2"})
        await one.done(1)
        one.ask(2, **{"model.scale": "0.1", "b.model.scale": "0.3"})
        await one.done(2)
        one.ask(3, **{"model.scale": "0.1"})  # the second configuration is removed,
        await one.done(3)
        one.ask(4, **{"model.scale": "0.1", "b.model.scale": "0.3"})  # and is back
        await one.done(4)

    one = with_page(scenario)
    sent = [(head["number"], head["place"]) for head in one.heads if "view" in head]
    assert sent == [(1, 0), (1, 1), (2, 1), (4, 1)]


def test_a_bad_value_leaves_the_picture_and_says_why():
    async def scenario(one: Page) -> None:
        one.go.set()
        one.ask(1, **{"model.scale": "0.1"})
        await one.done(1)
        one.ask(2, **{"model.scale": "70"})
        await one.done(2)

    one = with_page(scenario)
    [head] = [head for head in one.heads if head["number"] == 2 and "place" in head]
    assert "view" not in head and "from 0 to 10" in head["problems"]["model.scale"]


@pytest.mark.parametrize("name", ["task.dim", "model.heads", "training.steps", "seed"])
def test_an_integer_of_400_digits_gets_an_answer(name: str):
    async def scenario(one: Page) -> None:
        one.go.set()
        one.ask(1, **{name: "1" * 400})
        await one.done(1)

    one = with_page(scenario)
    assert any(name in head.get("problems", {}) for head in one.heads)


def test_controls_are_told_what_follows_from_a_change():
    async def scenario(one: Page) -> None:
        one.go.set()
        words = {"task.kind": "multitask", "model.kind": "merged", "model.scale": "0.1"}
        one.ask(1, "task.kind", **words)
        await one.done(1)

    one = with_page(scenario)
    head = next(head for head in one.heads if "values" in head)
    assert "view" not in head and head["problems"] == {}  # before anything is computed
    assert head["words"] == {"task.kind": "multitask", "model.scale": "0.1"}
    assert (head["values"]["model.kind"], head["values"]["model.heads"]) == ("spectral", "3")
    assert "spectral" in head["kinds"]["objective"] and "population" not in head["kinds"]["objective"]


def test_work_is_cancelled_and_ends_with_its_page():
    async def scenario(one: Page) -> None:
        one.ask(1, **{"model.scale": "0.1"})
        while not one.computed:
            await asyncio.sleep(0.005)
        one.session.ask(json.dumps({"number": 1, "words": {}, "cancel": True}))
        await one.done(1)
        one.ask(2, **{"model.scale": "0.2"})
        while len(one.computed) < 2:
            await asyncio.sleep(0.005)
        one.session.close()
        await one.done(2)

    one = with_page(scenario)
    assert all(head["stopped"] for head in one.heads if "done" in head)
    assert not any("view" in head for head in one.heads)


def test_an_error_in_a_view_is_an_answer():
    async def scenario(one: Page) -> None:
        one.broken = True
        one.ask(1, **{"model.scale": "0.1"})
        await one.done(1)

    one = with_page(scenario)
    assert any("ZeroDivisionError" in head.get("failed", "") for head in one.heads)


def test_what_is_no_request_is_ignored():
    async def scenario(one: Page) -> None:
        for text in ("", "[]", "1", "{}", '{"number": 1}', '{"number": "a", "words": {}}', '{"number": 1, "words": 3}'):
            one.session.ask(text)
        one.session.ask('{"number": 1e999, "words": {}}')
        one.session.ask("[" * 19_000)
        await asyncio.sleep(0.05)

    one = with_page(scenario)
    assert one.heads == [] and one.computed == []


def test_what_shows_something_goes_before_what_completes_it():
    turns, order = Turns(), []
    turns.take(FIRST)

    def wait(rank: int) -> None:
        turns.take(rank)
        order.append(rank)
        turns.give()

    threads = []
    for waiting, rank in enumerate((REST, REST, FIRST, FIRST), start=1):
        threads.append(threading.Thread(target=wait, args=(rank,)))
        threads[-1].start()
        while sum(map(len, turns._waiting)) < waiting:
            time.sleep(0.001)
    turns.give()
    for thread in threads:
        thread.join()
    assert order == [FIRST, FIRST, REST, REST]


def test_every_word_that_a_hint_names_is_in_the_glossary():
    assert {hint.glossary for hint in HINTS.values()} - {""} <= set(glossary())


def test_every_field_of_every_kind_is_declared_to_the_page():
    html = page("linear", "token").html
    settings = json.loads(html.split('id="settings">')[1].split("</script>")[0])
    for section in SECTIONS:
        for kind in kinds(section):
            assert [one["name"] for one in settings["sections"][section][kind]] == list(controls(section, kind))
            assert f'id="section-{section}"' in html or section == "record"
    assert 'id="control-run"' in page("stored", "token").html
