"""Reports in a real browser: reading, filtering, searching, keys, addresses, themes, paper."""

from __future__ import annotations

import json
import random
import statistics
from pathlib import Path
from typing import Any

import pytest

from assay.gate.run import GateReport, ModelOutcome
from assay.reports.gate_page import write_gate_page
from assay.reports.html import write_report
from assay.reports.index_page import write_index
from assay.reports.templates import ASSETS
from assay.results.check_results import CheckResult, Verdict
from tests.web.conftest import Opened, await_text
from tests.web.written_runs import KEY, write_run

pytestmark = pytest.mark.web


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tasks, 60 samples, beside a baseline in which every fourth was right where now it is wrong."""
    folder = tmp_path_factory.mktemp("runs")
    sums: list[dict[str, Any]] = [
        {"right": number % 2 == 0, "answer": f"It must be {number}, I say", "question": f"What is {number} + 0?"}
        for number in range(40)
    ]
    capitals = [{"answer": f"The city of {name}", "extracted": name} for name in ["Paris", "Rome"] * 10]
    earlier = [{**sample, "right": number % 4 < 3, "answer": "It may be 7"} for number, sample in enumerate(sums)]
    now = {"sums": sums, "capitals": capitals}
    before = {"sums": earlier, "capitals": capitals}
    results, baseline = write_run(folder / "now", now), write_run(folder / "before", before)
    return write_report(results, baseline=baseline)


def listed(page: Any) -> str:
    return str(page.locator("#count").inner_text())


def choose(page: Any, **choices: str) -> None:
    for name, value in choices.items():
        page.locator(f"#filters [name={name}]").select_option(value)


def test_it_loads_and_shows_scores_and_samples(report: Path, opened: Opened) -> None:
    with opened(report) as page:
        assert "0.5000" in page.locator("#scores").inner_text()
        assert listed(page) == "60 of 60"
        assert page.locator("#baseline td.bad").first.inner_text() == "-0.2500"
        page.locator("#list .row").nth(1).click()
        shown = page.locator("#sample").inner_text()
        assert "It must be 1, I say" in shown
        assert "What is 1 + 0?" in shown
        assert "4 earlier turns" in shown
        assert page.locator("#sample .role").all_inner_texts()[0] == "system"


def test_filters_narrow_the_list(report: Path, opened: Opened) -> None:
    with opened(report) as page:
        choose(page, task="sums")
        assert listed(page) == "40 of 60"
        choose(page, score="wrong")
        assert listed(page) == "20 of 60"
        choose(page, flip="lost")
        assert listed(page) == "10 of 60"
        assert set(page.locator("#list .row .flip").all_inner_texts()) == {"▼"}
        choose(page, score="right")
        assert listed(page) == "0 of 60"
        choose(page, flip="", score="", outcome="failed")
        assert listed(page) == "0 of 60"
        page.locator("#baseline a[data-flip=lost]").first.click()
        assert listed(page) == "10 of 60"


def test_the_search_goes_through_questions_and_answers(report: Path, opened: Opened) -> None:
    with opened(report) as page:
        page.keyboard.press("/")
        page.keyboard.type("CITY of rome")
        await_text(page.locator("#count"), "10 of 60")
        page.keyboard.press("Escape")
        page.keyboard.press("j")
        assert page.locator("#sample mark").all_inner_texts() == ["city of Rome"]
        page.locator("#filters [name=text]").fill("what is 7 + 0")
        await_text(page.locator("#count"), "1 of 60")
        page.locator("#filters [name=text]").fill(".*(")
        await_text(page.locator("#count"), "0 of 60")


def test_an_address_opens_its_sample(report: Path, opened: Opened) -> None:
    with opened(report, "#capitals/3") as page:
        page.wait_for_selector("#sample h3")
        assert page.locator("#sample h3 a").inner_text() == "capitals/3"
        assert page.locator("#list .current .doc").inner_text() == "3"
        page.evaluate("location.hash = '#sums/17'")
        await_text(page.locator("#sample h3 a"), "sums/17")
    with opened(report, "#nothing/1") as page:
        assert page.locator("#sample").inner_text() == "Choose a sample, or press j."
    with opened(report, "#%E0%A4%A/1") as page:
        assert listed(page) == "60 of 60"


def test_keys(report: Path, opened: Opened) -> None:
    with opened(report) as page:
        for key in "jjjk":
            page.keyboard.press(key)
        assert page.locator("#sample h3 a").inner_text() == "sums/1"
        assert page.url.endswith("#sums/1")
        assert page.locator("#sample del").first.inner_text() == "may"
        page.locator("#list").focus()
        page.keyboard.press("ArrowDown")
        assert page.locator("#sample h3 a").inner_text() == "sums/2"
        page.keyboard.press("ArrowUp")
        page.locator("#sample del").first.wait_for()
        page.keyboard.press("d")
        page.locator("#sample del").first.wait_for(state="detached")
        page.keyboard.press("?")
        assert page.locator("#help").is_visible()
        page.keyboard.press("Escape")
        assert not page.locator("#help").is_visible()
        assert page.locator("#sample h3").count() == 1
        page.keyboard.press("Escape")
        assert page.locator("#sample h3").count() == 0


def background(page: Any) -> str:
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))


def test_dark_and_light(report: Path, opened: Opened) -> None:
    with opened(report, color_scheme="light") as page:
        light = background(page)
        page.keyboard.press("t")
        dark = background(page)
        assert dark != light
        page.locator("#theme").click()
        assert background(page) == light
    with opened(report, color_scheme="dark") as page:
        assert background(page) == dark


def test_on_paper_there_are_scores_and_the_open_sample(report: Path, opened: Opened) -> None:
    with opened(report, "#sums/1") as page:
        page.wait_for_selector("#sample h3")
        page.emulate_media(media="print")
        assert page.locator("#scores .wide table").is_visible()
        assert page.locator("#sample h3").is_visible()
        assert not page.locator("#list").is_visible()
        assert not page.locator("#filters").is_visible()
        assert not page.locator("nav").is_visible()
        assert page.pdf()[:5] == b"%PDF-"


def test_a_narrow_window_needs_no_scrolling_sideways(report: Path, opened: Opened) -> None:
    with opened(report, viewport={"width": 360, "height": 700}) as page:
        page.keyboard.press("j")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_long_names_need_no_scrolling_sideways_either(tmp_path: Path, opened: Opened) -> None:
    name = "a_task_with_a_name_that_is_far_longer_than_a_narrow_window_is_wide_" * 2
    lost = [{"right": number < 5, "extracted": "?"} for number in range(30)]
    results, baseline = (
        write_run(tmp_path / "now", {name: lost}, name),
        write_run(tmp_path / "before", {name: [{}] * 30}),
    )
    with opened(write_report(results, baseline=baseline), viewport={"width": 360, "height": 700}) as page:
        page.keyboard.press("j")
        assert page.locator("#triage a").count() > 0
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def _ends(page: Any, selector: str) -> list[float]:
    """Where the elements end on the right, in pixels."""
    return [box["x"] + box["width"] for box in (one.bounding_box() for one in page.locator(selector).all()) if box]


@pytest.fixture(scope="module")
def wide_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Long names, a course of evidence, and lengths of answers, beside a baseline."""
    folder = tmp_path_factory.mktemp("wide")
    tasks = {
        f"leaderboard_mmlu_pro_{subject}_with_a_long_name": [{"right": number % 3 == 0} for number in range(40)]
        for subject in ("biology", "computer_science")
    }
    results = write_run(folder / "now", tasks)
    before = write_run(folder / "before", {name: [{}] * 40 for name in tasks})
    course = {
        "population": 1050,
        "alpha": 0.01,
        "threshold": 0.75,
        "higher_is_better": True,
        "seen": [10, 105],
        "estimate": [0.5, 0.375],
        "low": [0.0, 0.25],
        "high": [1.0, 0.625],
        "for_pass": [0.0, -2.0],
        "for_fail": [0.0, 2.0],
    }
    task = next(iter(tasks))
    evidence = {
        "task": task,
        "metric": KEY,
        "demand": ">= 0.75",
        "is_difference": False,
        "decided_after": 105,
        "course": course,
    }
    document = json.loads(results.read_text())
    document["assay"] = {"evidence": [evidence]}
    results.write_text(json.dumps(document))
    return write_report(results, baseline=before)


def test_a_table_of_differences_fits_a_window(wide_tables: Path, opened: Opened) -> None:
    with opened(wide_tables, viewport={"width": 1280, "height": 800}) as page:
        assert page.locator("#baseline .wide").evaluate("(area) => area.scrollWidth - area.clientWidth") <= 0


def test_a_narrow_window_shows_scores_and_differences(wide_tables: Path, opened: Opened) -> None:
    with opened(wide_tables, viewport={"width": 400, "height": 800}) as page:
        assert max(_ends(page, "#scores .wide td.strong")) <= 400
        assert max(_ends(page, "#baseline .wide td.strong")) <= 400


def test_a_page_of_a4_cuts_off_no_column(wide_tables: Path, opened: Opened) -> None:
    inside_the_margins = 688  # pixels of 1/96 inch: 210 mm less twice 14 mm
    with opened(wide_tables, viewport={"width": inside_the_margins, "height": 1000}) as page:
        page.emulate_media(media="print")
        assert page.locator(".wide").count() == 2
        assert max(_ends(page, ".wide table")) <= inside_the_margins


def test_plots_are_told_in_words_and_legends_have_values(wide_tables: Path, opened: Opened) -> None:
    with opened(wide_tables) as page:
        named = page.locator("[data-plot]").evaluate_all("(plots) => plots.map((plot) => plot.ariaLabel)")
        assert named == [
            "score 0.3750 after 105 documents, range 0.2500 to 0.6250, threshold 0.75",
            "evidence for pass 0.01, evidence for fail 100 after 105 documents; 100 decides",
        ]
        for media in ("screen", "print"):
            page.emulate_media(media=media)
            assert page.locator("[data-plot=course] .u-value").all_inner_texts() == [
                "105",
                "0.3750",
                "0.2500",
                "0.6250",
            ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_axe_finds_nothing(width: int, scheme: str, report: Path, wide_tables: Path, opened: Opened) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed (make test-web)")
    for file in (report, wide_tables):
        with opened(file, viewport={"width": width, "height": 900}, color_scheme=scheme) as page:
            page.keyboard.press("j")
            page.wait_for_selector("#sample h3")
            found = axe.Axe().run(page).response["violations"]
            assert [(one["id"], [node["target"] for node in one["nodes"]]) for one in found] == []


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (105, 1050, [200, 500, 1000]),
        (3, 4, [3, 3.2, 3.4, 3.6, 3.8, 4]),
        (0.02, 0.9, [0.02, 0.05, 0.1, 0.2, 0.5]),
        (1, 100000, [1, 10, 100, 1000, 10000, 100000]),
    ],
)
def test_ticks_are_round_and_several(low: float, high: float, ticks: list[float], browser: Any) -> None:
    page = browser.new_page()
    script = (ASSETS / "plots.js").read_text()
    assert page.evaluate(f"(() => {{ {script}; return roundNumbers({low}, {high}); }})()") == ticks
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_index_of_runs_narrows_as_one_types(tmp_path: Path, scheme: str, opened: Opened) -> None:
    for model, right in (("small-7b", 2), ("large-70b", 3)):
        samples = [{"right": number < right} for number in range(4)]
        write_run(tmp_path / model, {"sums": samples, "capitals": samples}, model)
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed (make test-web)")
    with opened(write_index(tmp_path), color_scheme=scheme, viewport={"width": 400, "height": 800}) as page:
        assert page.locator("#count").inner_text() == "4 of 4 scores"
        assert max(_ends(page, "td.strong")) <= 400
        assert axe.Axe().run(page).response["violations"] == []
        page.locator("#filter").fill("LARGE sums")
        assert page.locator("#count").inner_text() == "1 of 4 scores"
        assert page.locator("tr:visible td.strong").all_inner_texts() == ["0.7500"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_of_a_gate_is_clean(tmp_path: Path, scheme: str, opened: Opened) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed (make test-web)")
    results = write_run(tmp_path / "now", {"sums": [{"right": number < 2} for number in range(4)]})
    check = CheckResult(task="sums", metric=KEY, min=0.75, value=0.5, verdict=Verdict.FAIL, reason="it is below 0.75")
    outcome = ModelOutcome(
        name="some", model="some-model", base_url="http://a:1", checks=(check,), results_file=str(results)
    )
    report = GateReport(policy="gate.toml", verdict=Verdict.FAIL, models=(outcome,))
    file = write_gate_page(report, tmp_path / "gate.html")
    with opened(file, color_scheme=scheme, viewport={"width": 400, "height": 800}) as page:
        assert axe.Axe().run(page).response["violations"] == []
        assert page.evaluate("document.documentElement.scrollWidth") <= 400


_KEY_TO_PAINT = """() => new Promise((resolve) => {
  addEventListener("keydown", (event) => {
    const pressed = performance.now();
    requestAnimationFrame(() => {
      const channel = new MessageChannel();
      channel.port1.onmessage = () => resolve(performance.now() - pressed);
      channel.port2.postMessage(null);
    });
  }, { capture: true, once: true });
})"""


def test_twelve_thousand_samples_stay_responsive(tmp_path: Path, opened: Opened) -> None:
    words = random.Random(1)
    vocabulary = [f"{syllable}{ending}" for syllable in ("ta", "ri", "mo", "ke", "su") for ending in ("n", "lo", "rim")]

    def text(count: int) -> str:
        return " ".join(words.choices(vocabulary, k=count))

    tasks = {
        f"mmlu_pro_{subject}": (
            {"question": text(90), "answer": text(220), "right": words.random() < 0.5} for _ in range(1504)
        )
        for subject in ("art", "biology", "chess", "dance", "economics", "french", "geology", "history")
    }
    file = write_report(write_run(tmp_path, tasks))
    assert file.stat().st_size < 5_000_000
    with opened(file) as page:
        assert listed(page) == "12,032 of 12,032"
        assert page.locator("#list .row").count() < 100
        times = []
        for _ in range(20):
            pressed = page.evaluate_handle(_KEY_TO_PAINT.replace("() =>", "() => ({ done: ", 1) + "})")
            page.keyboard.press("j")
            times.append(page.evaluate("(handle) => handle.done", pressed))
        print(f"from key to paint: {statistics.median(times):.1f} ms, at most {max(times):.1f} ms")
        assert statistics.median(times) < 1000
        page.locator("#list").evaluate("(list) => list.scrollTo(0, list.scrollHeight)")
        await_text(page.locator("#list .doc").last, "1503")
        page.locator("#filters [name=text]").fill("no such words")
        await_text(page.locator("#count"), "0 of 12,032", seconds=60)
