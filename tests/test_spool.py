"""What is put into the spool comes out, in whatever order it is asked for, and leaves nothing behind."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay._util import spool
from assay._util.spool import Spool
from assay.errors import OutputError


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=30), st.data())
def test_everything_comes_back(tmp_path: Path, strings: list[bytes], data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch, Spool(tmp_path) as spooled:
        patch.setattr(spool, "_BLOCK", 64)
        kept: dict[int, bytes] = {}
        for string in strings:
            kept[spooled.append(string)] = string
            if data.draw(st.booleans()):
                number = data.draw(st.sampled_from(sorted(kept)))
                assert spooled.read(number) == kept[number]
        for number in data.draw(st.permutations(sorted(kept))):
            assert spooled.read(number) == kept[number]
    assert list(tmp_path.iterdir()) == []


def test_a_string_larger_than_a_block(tmp_path: Path) -> None:
    with Spool(tmp_path) as spooled:
        large = bytes(range(256)) * 20_000
        numbers = [spooled.append(large), spooled.append(b"small")]
        assert [spooled.read(number) for number in numbers] == [large, b"small"]


def test_a_full_disk_is_said_to_be_full(tmp_path: Path) -> None:
    class Full:
        def __getattr__(self, _: str) -> Any:
            raise OSError(28, "No space left on device")

    with Spool(tmp_path) as spooled:
        number = spooled.append(b"x")
        file, spooled._file = spooled._file, Full()  # type: ignore[assignment]
        with pytest.raises(OutputError, match="No space left"):
            spooled.read(number)
        spooled._file = file
        assert spooled.read(number) == b"x"


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"cannot write a report's texts to .*/nowhere: "):
        Spool(tmp_path / "nowhere", what="a report's texts")


def test_lengths_are_known_without_reading(tmp_path: Path) -> None:
    with Spool(tmp_path) as spooled:
        assert [spooled.length(spooled.append(string)) for string in (b"four", b"", b"x")] == [4, 0, 1]
