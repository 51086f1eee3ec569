"""The documentation builds without a warning: pages, links and anchors, options and names of the API."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\((?!https?://)([^)#\s]+)(?:#[^)]*)?\)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="the extra docs is not installed")
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_every_command_is_on_the_page_of_the_command_line(site: Path) -> None:
    from assay.cli import cli

    page = (site / "cli.html").read_text(encoding="utf-8")
    missing = [name for name in cli.commands or cli.list_commands(None) if f"assay {name} " not in page]  # type: ignore[arg-type]
    assert not missing


def test_every_exported_name_is_on_the_page_of_the_api(site: Path) -> None:
    import assay

    page = (site / "python.html").read_text(encoding="utf-8")
    assert not [name for name in assay.__all__ if name != "__version__" and name not in page]


def test_the_readme_links_to_files_that_are_there() -> None:
    linked = LINK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert linked
    assert not [target for target in linked if not (ROOT / target).exists()]


def test_the_filter_of_the_page_on_tasks_reads_the_page_s_own_answer() -> None:
    import yaml
    from lm_eval.filters.extraction import RegexFilter

    page = (ROOT / "docs" / "own-task.md").read_text(encoding="utf-8")
    blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]
    filters = next(block["filter_list"] for block in blocks if "filter_list" in block)
    pattern = filters[0]["filter"][0]["regex_pattern"]
    assert list(RegexFilter(regex_pattern=pattern).apply([["The capital is Rome."]], [{}])) == [["Rome"]]
