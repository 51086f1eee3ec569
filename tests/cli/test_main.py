"""What every command has in common."""

import pytest

from assay import cli


def test_control_c_at_any_moment_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.cli, "invoke", interrupted)
    with pytest.raises(SystemExit) as ended:
        cli.main(["tasks"])
    assert ended.value.code == 130
    assert capsys.readouterr().err == "assay: interrupted\n"
