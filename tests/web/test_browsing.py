"""Reports in a real browser: reading, filtering, searching, keys, addresses, themes, paper."""

from __future__ import annotations

import random
import statistics
from pathlib import Path
from typing import Any

import pytest

from assay.reports.html import write_report
from tests.web.conftest import Opened, await_text
from tests.web.written_runs import write_run

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
