"""Where the key comes from."""

import os
from pathlib import Path

import pytest

from assay.client.api_key import read_api_key
from assay.errors import SpecificationError
from assay.types import ModelSpec


def spec(file: Path | None = None) -> ModelSpec:
    return ModelSpec(
        base_url="http://h", model="m", api_key_env="KEY", api_key_file=None if file is None else str(file)
    )


def test_the_variable_or_in_its_place_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "of the variable")
    assert read_api_key(spec()) == "of the variable"
    (tmp_path / "key").write_text("sk-of-the-file\r\n")
    assert read_api_key(spec(tmp_path / "key")) == "sk-of-the-file"


def test_no_key_is_asked_for_and_a_variable_that_is_named_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert read_api_key(ModelSpec(base_url="http://h", model="m")) is None
    monkeypatch.delenv("KEY", raising=False)
    with pytest.raises(SpecificationError, match=r"environment variable KEY, .* is not set"):
        read_api_key(spec())
    monkeypatch.setenv("KEY", "")
    assert read_api_key(spec()) == ""


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"),
        (b" \n", "is empty"),
        (b"sk-1\nsk-2\n", "the key alone, on one line"),
        (b"sk-\xc3\xa9", "the key alone"),
        (b"sk-" * 30_000, "larger than a key can be"),
    ],
)
def test_a_file_without_a_key_is_named_and_not_repeated(tmp_path: Path, content: bytes | None, said: str) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SpecificationError, match=said) as caught:
        read_api_key(spec(file))
    assert str(file) in str(caught.value)
    assert "sk-" not in str(caught.value)


def test_a_pipe_gives_its_key_as_often_as_it_is_needed() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"sk-of-a-command\n")
    os.close(writing)
    try:
        assert [read_api_key(spec(Path(f"/dev/fd/{reading}"))) for _ in range(3)] == ["sk-of-a-command"] * 3
    finally:
        os.close(reading)


@pytest.mark.parametrize("name", ["~nobody-of-this-name/key", "a\0b"])
def test_a_name_that_no_file_has_is_refused(name: str) -> None:
    with pytest.raises(SpecificationError, match="cannot read the API key file"):
        read_api_key(spec(Path(name)))
