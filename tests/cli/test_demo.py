"""``assay demo`` where it cannot begin."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.cli import main


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit) as ended:
        main(["demo", "--output-dir", str(tmp_path / "file" / "results")])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert "cannot create the output directory" in error
    assert error.count("\n") == 1
