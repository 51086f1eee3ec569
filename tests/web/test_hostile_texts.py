"""What a model says runs nothing, loads nothing, and cannot hide."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.reports.html import write_report
from tests.web.conftest import Opened, await_text
from tests.web.written_runs import write_run

pytestmark = pytest.mark.web

HOSTILE = (
    "<script>window.pwned = 1</script>",
    "</script><script>window.pwned = 1</script>",
    "<!--<script>",
    "--></style></textarea></title><img src=x onerror='window.pwned = 1'>",
    '"><svg onload="window.pwned = 1">',
    "<iframe srcdoc='<script>parent.pwned = 1</script>'></iframe>",
    "<link rel=stylesheet href=http://127.0.0.1:9/x.css><img src=http://127.0.0.1:9/x.png>",
    "<meta http-equiv=refresh content='0;url=javascript:window.pwned=1'>",
    "[click](javascript:window.pwned=1) javascript:window.pwned=1",
    "<a href=javascript:window.pwned=1>click</a>",
    "{{ 7 * 7 }} {% raw %} ${7 * 7} {{constructor.constructor('window.pwned=1')()}}",
    "<base href=http://127.0.0.1:9/>",
    "'; window.pwned = 1; //",
    "`${window.pwned = 1}`",
)


def test_markup_is_shown_as_it_was_said(tmp_path: Path, opened: Opened) -> None:
    samples = [
        {"question": text, "answer": f"{text} said", "extracted": text, "target": text, "right": False}
        for text in HOSTILE
    ]
    model = " ".join(HOSTILE)
    file = write_report(write_run(tmp_path, {"task": samples}, model=model))
    with opened(file) as page:
        assert page.locator("h1").text_content() == model
        for number, text in enumerate(HOSTILE):
            page.keyboard.press("j")
            await_text(page.locator("#sample h3 a"), f"task/{number}")
            page.locator("#sample details summary").first.click()
            assert page.locator("#sample > .text").last.text_content() == f"{text} said"
            assert page.locator("#list .current .target").text_content()[:79] == text[:79]
        assert page.locator("#sample :is(script, img, svg, iframe, link, meta, style, base)").count() == 0
        assert page.locator("iframe, link, base, img").count() == 0
        page.locator("#filters [name=text]").fill(HOSTILE[3])
        await_text(page.locator("#count"), f"1 of {len(HOSTILE)}")


def test_hidden_characters_are_shown(tmp_path: Path, opened: Opened) -> None:
    answer = "a\u202eb\0c\x1b[2Jd\u2028e\ufefff\ud800g\rh"
    sample = {"question": answer, "answer": answer, "extracted": answer, "target": answer, "right": False}
    file = write_report(write_run(tmp_path, {"task": [sample]}, model="m\u202eodel"))
    with opened(file) as page:
        page.keyboard.press("j")
        page.wait_for_selector("#sample h3")
        codes = "aU+202EbU+0000cU+001B[2JdU+2028eU+FEFFfU+D800gU+000Dh"
        assert page.locator("#sample .text").last.text_content() == codes
        assert page.locator("#list .extracted").inner_text() == codes.replace("U+000D", " ").replace(
            "U+2028", " "
        ).replace("U+FEFF", " ")
        assert page.locator("h1").inner_text() == "m\\u202eodel"
        for character in "\u202e\0\x1b\u2028\ufeff":
            assert character not in page.locator("body").inner_text()


def test_an_answer_of_ten_megabytes_is_cut(tmp_path: Path, opened: Opened) -> None:
    sample = {"answer": "a" * 5_000_000 + "<b>" + "z" * 5_000_000, "extracted": "9" * 10_000_000, "right": False}
    file = write_report(write_run(tmp_path, {"task": [sample]}))
    assert file.stat().st_size < 500_000
    with opened(file, "#task/0") as page:
        page.wait_for_selector("#sample h3")
        assert "9,980,003 characters left out" in page.locator("#sample").inner_text()
        assert page.evaluate("document.querySelector('#sample').textContent.length") < 50_000
        assert page.evaluate("document.documentElement.scrollWidth") <= 1400


def test_a_task_name_cannot_break_out_of_addresses(tmp_path: Path, opened: Opened) -> None:
    name = "task '\"><script>window.pwned = 1<"
    file = write_report(write_run(tmp_path, {name: [{}, {}], "other": [{}]}))
    with opened(file) as page:
        page.keyboard.press("j")
        page.wait_for_selector("#sample h3")
        page.keyboard.press("j")
        address = page.url.split("#")[1]
    with opened(file, f"#{address}") as page:
        page.wait_for_selector("#sample h3")
        assert page.locator("#sample h3 a").inner_text() == f"{name}/1"
