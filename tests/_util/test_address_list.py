"""Base URLs one by one, in one text, and in files."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay._util.address_list import read_addresses
from assay.errors import SpecificationError


def test_they_come_in_order_and_once(tmp_path: Path) -> None:
    file = tmp_path / "replicas"
    file.write_text("# rack 4\nhttp://b:8000/v1\n\n  # http://old\n  http://c/#part  # spare\nhttp://a\n")
    assert read_addresses(["http://a", f"@{file}"]) == ("http://a", "http://b:8000/v1", "http://c/#part")
    file.write_bytes(b"\xef\xbb\xbfhttp://a\r\nhttp://b\r\n")
    assert read_addresses([f"@{file}"]) == ("http://a", "http://b")
    assert read_addresses([" http://b\n http://a ", "http://b"]) == ("http://b", "http://a")


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "No such file"), (b"# none\n\n", "holds no base URL"), (b"\xff\xfe", "it is not a text file")],
)
def test_a_file_that_names_none_is_refused(tmp_path: Path, content: bytes | None, message: str) -> None:
    file = tmp_path / "replicas"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SpecificationError, match=message):
        read_addresses([f"@{file}"])


def test_nothing_at_all_is_refused() -> None:
    with pytest.raises(SpecificationError, match="no base URL"):
        read_addresses([" "])


@pytest.mark.parametrize("name", ["~nobody-of-this-name/replicas", "a\0b"])
def test_so_is_a_name_that_no_file_has(name: str) -> None:
    with pytest.raises(SpecificationError, match="cannot read the base URLs"):
        read_addresses([f"@{name}"])
