"""The page in a real browser: what it shows, and that every way to use it works."""

import csv
import io
import subprocess
import sys
import xml.etree.ElementTree
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import numpy as np
import pytest
import xarray as xr
from explorer_page import settle, wait
from PIL import Image
from playwright.sync_api import Page

import stepwell as sw
from stepwell.explorer._controls import PRESETS
from stepwell.explorer._state import State
from stepwell.explorer._view import view

Open = Callable[..., Page]


def query(page: Page) -> dict[str, str]:
    return {name: given[-1] for name, given in parse_qs(urlsplit(page.url).query, keep_blank_values=True).items()}


def fill(page: Page, control: str, text: str) -> None:
    page.fill(f"#control-{control.replace('.', '-')}", text)
    settle(page)


def loss_of(page: Page, place: int = 0) -> np.ndarray:
    return np.array(page.evaluate(f"() => Array.from(window.stepwell.views[{place}].loss)"))


@pytest.mark.parametrize("words", [preset.words for preset in PRESETS.values()])
def test_the_numbers_are_those_of_the_library(open_page: Open, words: dict[str, str]):
    page = open_page("?" + urlencode(words))
    expected = view(State.read(words)[0])
    np.testing.assert_allclose(loss_of(page), expected["loss"], rtol=1e-12)
    shown = page.evaluate("() => [...document.querySelectorAll('#table td')].map(one => one.dataset.value ?? null)")
    cells = [cell for row in expected["table"]["rows"] for cell in row]
    numbers = [(text, cell) for text, cell in zip(shown, cells, strict=True) if type(cell) in (int, float)]
    assert len(numbers) > 10
    np.testing.assert_allclose(*np.array([(float(text), cell) for text, cell in numbers]).T, rtol=1e-12)
    drawn = page.evaluate("() => Array.from(Bokeh.documents[0].get_model_by_name('loss.levels').data.y)")
    assert page.inner_text("#now").startswith("t/τ = ")
    label = page.evaluate("() => Bokeh.documents[0].get_model_by_name('loss.time_axis').axis_label")
    assert label == "time t/τ"
    levels = expected["limits"].values() if "limits" in expected else expected["levels"]
    np.testing.assert_allclose(drawn, sorted(levels, reverse=True), rtol=1e-12)
    strips = page.evaluate("() => Bokeh.documents[0].get_model_by_name('loss.strips').data.x1.length")
    known = np.isfinite(expected.get("drop_uncertainties", ()))
    if known.any():
        within = expected["drop_times"][known] - expected["drop_uncertainties"][known] < expected["time"][-1]
        assert 0 < strips <= within.sum() and "shaded: ±" in page.inner_text("#note-loss")


def test_the_first_view_explains_itself(open_page: Open):
    page = open_page()
    assert page.title() == "Linear attention · Stepwell"
    assert page.inner_text(".intro").count(". ") + 1 == 3
    assert page.inner_text("#caption").startswith("Separate attention, 4 heads")
    assert page.locator("figure:visible").count() == 5


def test_dragging_a_slider_changes_the_picture_and_the_address(open_page: Open):
    page = open_page()
    before = loss_of(page)
    slider = page.locator('[data-for="model.scale"]')
    slider.evaluate("one => one.scrollIntoView({block: 'center'})")
    box = slider.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] / 2, y)
    page.mouse.down()
    for part in np.linspace(0.5, 0.8, 8):
        page.mouse.move(box["x"] + part * box["width"], y)
    page.mouse.up()
    settle(page)
    assert float(query(page)["model.scale"]) > 0.02
    assert page.input_value("#control-model-scale") == query(page)["model.scale"]
    after = loss_of(page)
    assert after.shape != before.shape or np.abs(after - before).max() > 1e-3
    expected = view(State.read({"model.scale": query(page)["model.scale"]})[0])
    np.testing.assert_allclose(after, expected["loss"], rtol=1e-12)
    assert len(page.evaluate("() => window.stepwell.latencies")) >= 2
    assert len(page.evaluate("() => window.stepwell.waits")) >= 8


def test_time_is_moved_and_played_in_the_browser_alone(open_page: Open):
    page = open_page("?t=50")
    number = page.evaluate("() => window.stepwell.asked")
    assert page.inner_text("#now") == "t/τ = 50"
    cells = "() => Array.from(Bokeh.documents[0].get_model_by_name('map.cells').data.value)"
    early = page.evaluate(cells)
    page.locator("#time").focus()
    page.keyboard.press("End")
    wait(page, "() => !new URLSearchParams(location.search).has('t')")
    late = page.evaluate(cells)
    assert np.abs(np.array(late) - np.array(early)).max() > 0.1
    page.click("#play")
    wait(page, "() => window.stepwell.frames.length > 10")
    page.click("#play")
    assert page.inner_text("#play") == "Play" and "t" in query(page)
    page.check("#log-time")
    assert query(page)["axis"] == "log"
    assert page.evaluate("() => window.stepwell.asked") == number


def test_up_to_four_configurations_are_compared(open_page: Open):
    page = open_page()
    compare = page.get_by_role("button", name="+ Compare")
    for scale in ("0.1", "0.3", "0.02"):
        compare.click()
        fill(page, "model.scale", scale)
    assert compare.count() == 0
    lines = "() => Bokeh.documents[0].get_model_by_name('loss.lines').data.xs.length"
    assert page.evaluate(lines) == 4
    assert query(page) == {"b.model.scale": "0.1", "c.model.scale": "0.3", "d.model.scale": "0.02", "picked": "3"}
    np.testing.assert_allclose(loss_of(page, 1), view(State.read({"model.scale": "0.1"})[0])["loss"], rtol=1e-12)
    page.get_by_role("button", name="Remove D").click()
    settle(page)
    assert page.evaluate(lines) == 3 and "d.model.scale" not in query(page)
    compare.click()  # a copy of C
    settle(page)
    assert page.evaluate(lines) == 4 and query(page)["d.model.scale"] == "0.3"
    page.get_by_role("button", name="Configuration A").click()
    assert page.input_value("#control-model-scale") == "0.01"


@pytest.mark.parametrize(
    "address",
    [
        "task.eigenvalues=0.5,0.3,0.1&model.rank=2&b.model.scale=0.1&picked=1&t=40&axis=log",
        "task.kind=multitask&task.dims=4,6&task.strengths=1,2&model.heads=1&c.=",
    ],
)
def test_a_link_reproduces_its_state(open_page: Open, address: str):
    page = open_page("?" + address)
    expected = {name: given[-1] for name, given in parse_qs(address, keep_blank_values=True).items()}
    if "c." in expected:
        expected["b."] = expected.pop("c.")  # the second configuration, whatever its letter
    page.click("#link")
    assert query(page) == expected
    assert page.locator("#files-say").inner_text() == page.url or "clipboard" in page.inner_text("#files-say")


def test_every_download_can_be_opened(open_page: Open, tmp_path: Path):
    page = open_page("?task.dim=2&model.heads=2&model.scale=0.1")
    kinds = page.locator("#files a").evaluate_all("all => all.map(one => one.dataset.kind)")
    files = {}
    for kind in kinds:
        with page.expect_download() as coming:
            page.click(f'#files a[data-kind="{kind}"]')
        files[kind] = tmp_path / coming.value.suggested_filename
        coming.value.save_as(files[kind])
    assert xml.etree.ElementTree.parse(files["svg"]).getroot().tag.endswith("svg")
    assert files["pdf"].read_bytes().startswith(b"%PDF")
    with Image.open(files["gif"]) as film:
        assert getattr(film, "n_frames", 1) > 5
    with xr.open_dataset(files["netcdf"]) as data:
        assert np.isfinite(data["loss"]).all()
    rows = list(csv.reader(io.StringIO(files["csv"].read_text())))
    assert len(rows) > 20 and {row[rows[0].index("quantity")] for row in rows} >= {"loss", "values"}
    compile(files["script"].read_text(), "script", "exec")
    assert files["script"].name == "explorer_run.py"
    assert (
        sw.Experiment.read(files["toml"])
        == State.read({"task.dim": "2", "model.heads": "2", "model.scale": "0.1"})[0].run
    )
    assert "stepwell train" in files["command"].read_text()


def test_a_bad_value_is_explained_beside_its_control(open_page: Open):
    page = open_page()
    before = loss_of(page)
    page.fill("#control-model-heads", "99")
    page.wait_for_selector("#error-model-heads:not([hidden])")
    assert "from 1 to 8" in page.inner_text("#error-model-heads")
    assert page.get_attribute("#control-model-heads", "aria-invalid") == "true"
    np.testing.assert_array_equal(loss_of(page), before)  # the picture stays
    fill(page, "model.heads", "3")
    assert page.locator("#error-model-heads").is_hidden()
    assert page.evaluate("() => window.stepwell.views[0].values.shape[1]") == 3
    linked = open_page("?model.heads=99&nonsense=1&model.scale=<script>")
    assert "from 1 to 8" in linked.inner_text("#error-model-heads")
    assert "nonsense" in linked.inner_text("#error-")
    assert loss_of(linked).size > 10


def test_eigenvalues_are_dragged_one_by_one(open_page: Open):
    page = open_page()
    page.select_option("#control-task-spectrum", "custom")
    settle(page)
    assert page.input_value("#control-task-eigenvalues") == "0.4,0.3,0.2,0.1"
    assert page.locator("#control-task-dim").is_hidden()
    bar = page.get_by_label("Eigenvalues λ, number 2", exact=True)
    bar.focus()
    page.keyboard.press("ArrowUp")
    settle(page)
    assert query(page) == {"task.spectrum": "custom", "task.eigenvalues": "0.4,0.31,0.2,0.1"}
    fill(page, "task.eigenvalues", "0.4,0.31,0.2")
    assert page.input_value("#control-model-heads") == "3"  # one for each eigenvalue
    page.select_option("#control-task-spectrum", "white")
    settle(page)
    assert query(page) == {"task.spectrum": "white", "task.dim": "3"}


def test_another_kind_brings_its_own_controls_and_pictures(open_page: Open):
    page = open_page("?model.rank=2&training.kind=descent")
    page.select_option("#control-model-kind", "merged")
    settle(page)
    assert query(page) == {"model.kind": "merged"}  # the rank is left out, and training follows from the kinds
    assert page.locator("#control-model-rank").count() == 0 and page.input_value("#control-training-kind") == "flow"
    page.select_option("#control-task-kind", "multitask")
    settle(page)
    assert query(page) == {"task.kind": "multitask"} and page.title() == "Softmax attention · Stepwell"
    assert page.locator("#card-omega").is_visible() and page.locator("#card-values").is_hidden()
    offered = "one => [...one.options].filter(option => !option.disabled).map(option => option.value)"
    assert page.eval_on_selector("#control-objective-kind", offered) == State.read(query(page))[0].kinds()["objective"]
    assert page.locator("#error-").is_hidden()


def test_a_users_kind_has_sliders_and_a_curve(open_page: Open):
    page = open_page("?model.kind=gated&training.steps=40&objective.sequences=30&task.dim=2")
    assert page.locator("#card-loss").is_visible() and page.locator("#card-values").is_hidden()
    before = loss_of(page)
    slider = page.locator('[data-for="model.gate"]')
    assert (slider.get_attribute("min"), slider.get_attribute("max")) == ("0", "1")
    slider.focus()
    page.keyboard.press("Home")
    page.keyboard.press("PageUp")
    settle(page)
    assert float(query(page)["model.gate"]) < 0.5
    assert np.abs(loss_of(page) - before).max() > 1e-6
    assert "Opening of the gate" in (page.text_content("#help-model-gate") or "")


def test_whole_heads_have_curves_of_scores_and_outputs(open_page: Open):
    page = open_page("?model.kind=multihead&training.steps=40&objective.sequences=30&task.dim=2")
    for name in ("loss", "omega", "mu"):
        assert page.locator(f"#card-{name}").is_visible()
    assert page.locator("#card-values").is_hidden() and page.locator("#card-allocation").is_hidden()
    assert page.locator("#note-omega").text_content() == "head 1 head 2 "


def test_everything_is_reached_by_keyboard(open_page: Open):
    page = open_page()
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.className") == "skip"
    seen = set()
    for _ in range(120):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("() => document.activeElement.id || document.activeElement.dataset.for || ''"))
    assert {
        "tour",
        "theme",
        "model.scale",
        "control-model-scale",
        "control-model-kind",
        "time",
        "play",
        "log-time",
        "store",
    } <= seen
    page.locator('[data-for="model.heads"]').focus()
    page.keyboard.press("ArrowRight")
    settle(page)
    assert query(page)["model.heads"] == "5"
    hint = page.get_by_role("button", name="Explain: Rank R")
    hint.focus()
    page.keyboard.press("Enter")
    assert "Pairs of key and query" in page.inner_text("#help-model-rank")
    assert "One row of the key" in page.inner_text("#help-model-rank")  # the glossary
    page.locator("#play").focus()
    page.keyboard.press("Space")
    wait(page, "() => window.stepwell.frames.length > 2")


def test_steps_beside_the_time_fit(open_page: Open):
    page = open_page("?training.kind=descent")
    edges = "id => (({left, right}) => [left, right])(document.querySelector(id).getBoundingClientRect())"
    assert "step" in page.locator("#now").inner_text()
    assert page.evaluate(
        "() => document.getElementById('now').scrollWidth <= document.getElementById('now').clientWidth"
    )
    assert page.evaluate(edges, "#now")[1] <= page.evaluate(edges, "#clock label")[0]
    assert page.evaluate("() => (table => table.scrollWidth <= table.clientWidth)(document.querySelector('.scroll'))")


@pytest.mark.parametrize("mode", ["", "task.kind=multitask", "mode=stored"])
def test_at_phone_width_nothing_is_cut_off(open_page: Open, mode: str):
    page = open_page(f"?{mode}", viewport={"width": 360, "height": 740})
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 360
    if "stored" not in mode:
        box = page.locator("#card-loss").bounding_box()
        assert box is not None and box["y"] < 740 and box["width"] > 320


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_is_readable(open_page: Open, scheme: str):
    page = open_page(color_scheme=scheme)
    assert page.get_attribute("html", "data-theme") == scheme

    def luminance(selector: str, name: str) -> float:
        color = page.eval_on_selector(selector, f"one => getComputedStyle(one).{name}")
        parts = np.array([float(part) for part in color[color.index("(") + 1 : -1].split(",")[:3]]) / 255
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    def contrast(text: str, back: str) -> float:
        light, dark = sorted((luminance(text, "color"), luminance(back, "backgroundColor")), reverse=True)
        return (light + 0.05) / (dark + 0.05)

    page.fill("#control-model-heads", "0")
    page.wait_for_selector("#error-model-heads:not([hidden])")
    for text, back in ((".intro", "body"), (".note", ".card"), ("label", "fieldset"), ("td", ".card")):
        assert contrast(text, back) >= 4.5, text
    assert contrast("#error-model-heads", "#error-model-heads") >= 4.5
    assert contrast("nav [aria-current]", "nav [aria-current]") >= 4.5
    page.click("#theme")
    assert page.get_attribute("html", "data-theme") != scheme
    page.reload()
    assert page.get_attribute("html", "data-theme") != scheme  # it is remembered


def test_the_tour_has_six_steps(open_page: Open):
    page = open_page()
    page.click("#tour")
    titles = []
    for number in range(1, 7):
        wait(page, f"() => document.getElementById('guide-step')?.textContent.startsWith('Step {number} ')")
        settle(page)
        titles.append(page.inner_text("#guide-title"))
        page.click("#guide-next")
    assert titles == ["Wait", "Drop", "Plateau", "The next component", "Rank", "Softmax"]
    assert page.locator("#guide").is_hidden()
    assert query(page)["task.kind"] == "multitask"


def test_longer_work_shows_its_progress_and_can_be_cancelled(open_page: Open):
    page = open_page(
        "?task.kind=multitask&objective.kind=reduced&objective.sequences=2000&training.steps=10000&task.dims=20,20,20&model.heads=6",
        ready=False,
    )
    page.wait_for_selector("#progress:not([hidden])")
    page.click("#cancel")
    settle(page)
    assert page.inner_text("#status") == "Stopped."
    page.select_option("#control-objective-kind", "spectral")
    settle(page)
    assert loss_of(page).size > 10


def test_what_waits_is_cancelled_too(open_page: Open):
    page = open_page(
        "?task.kind=multitask&objective.kind=reduced&objective.sequences=2000&training.steps=10000&task.dims=20,20,20&model.heads=6",
        ready=False,
    )
    page.wait_for_selector("#progress:not([hidden])")
    page.evaluate("""() => {
        const heads = document.getElementById("control-model-heads");
        heads.value = "5";
        heads.dispatchEvent(new Event("input", {bubbles: true}));
        heads.dispatchEvent(new Event("change", {bubbles: true}));
        document.getElementById("cancel").click();
    }""")
    assert page.evaluate("() => window.stepwell.asked") >= 2
    settle(page)
    assert page.inner_text("#status") == "Stopped."


def test_a_stored_run_is_listed_and_opened(open_page: Open):
    page = open_page(
        "?task.dim=2&model.heads=2&model.scale=0.1&training.kind=descent&training.steps=300&training.rate=0.02"
    )
    final = loss_of(page)[-1]
    page.click("#store")
    wait(page, "() => document.getElementById('files-say').textContent.startsWith('In the store')")
    stored = open_page("?mode=stored")
    stored.wait_for_selector("#runs button")
    stored.fill("#filter", "training.steps=300 model.heads=2")
    wait(stored, "() => document.querySelectorAll('#runs button').length === 1")
    stored.click("#runs button")
    settle(stored)
    assert len(query(stored)["run"]) == 32
    assert loss_of(stored)[-1] == pytest.approx(final, rel=1e-9)
    assert stored.locator("#card-values").is_visible() and stored.locator("#card-omega").is_hidden()
    stored.fill("#filter", "final_loss<<")
    stored.wait_for_selector("#filter-error:not([hidden])")
    stored.select_option("#control-figure", "linear-fig1")
    wait(stored, "() => document.getElementById('figure-image').naturalWidth === 40")


def test_an_open_page_survives_the_end_of_its_server(open_page: Open, server, browser):
    context = browser.new_context()
    page = context.new_page()
    page.goto(server.address + "?model.scale=0.1&b.model.scale=0.2&t=30")
    settle(page)
    before = loss_of(page, 1)
    token = page.evaluate("() => JSON.parse(document.getElementById('settings').textContent).token")
    server.stop()
    page.wait_for_selector("#lost:not([hidden])")
    server.start()
    wait(page, f"() => JSON.parse(document.getElementById('settings').textContent).token !== '{token}'")
    settle(page)
    assert query(page) == {"model.scale": "0.1", "b.model.scale": "0.2", "t": "30"}
    np.testing.assert_allclose(loss_of(page, 1), before, rtol=1e-12)
    context.close()


def test_the_command_says_where_it_is_and_ends_by_ctrl_c(tmp_path: Path):
    command = [sys.executable, "-m", "stepwell", "explore", "--port", "0", "--no-browser", "--store", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    line = process.stdout.readline()
    process.send_signal(2)
    _, errors = process.communicate(timeout=60)
    assert line.startswith("the explorer is at http://127.0.0.1:")
    assert process.returncode == 130 and "Traceback" not in errors
