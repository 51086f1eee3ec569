from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.errors import FileFormatError, SpecificationError
from assay.tasks.huggingface_tokenizer import HuggingFaceTokenizer
from assay.tasks.patches import datasets_library
from tests.small_tokenizer import write_small_tokenizer


def test_text_survives_the_way_there_and_back(tmp_path: Path) -> None:
    tokenizer = HuggingFaceTokenizer(write_small_tokenizer(tmp_path))
    for text in ("", " ", "The answer is (A).", "\n\nNaïve 日本 🙂", "<s>marked</s>"):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_special_tokens_are_read_where_written_and_never_added(tmp_path: Path) -> None:
    tokenizer = HuggingFaceTokenizer(write_small_tokenizer(tmp_path))
    assert (tokenizer.bos_token, tokenizer.bos_token_id) == ("<s>", 1)
    assert tokenizer.encode("<s>")[0] == 1
    assert 1 not in tokenizer.encode("The answer")


def test_cutting_and_filling_saved_with_a_tokenizer_are_undone(tmp_path: Path) -> None:
    folder = Path(write_small_tokenizer(tmp_path))
    content = json.loads((folder / "tokenizer.json").read_text())
    content["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    content["padding"] = {
        "strategy": {"Fixed": 500},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "<pad>",
    }
    (folder / "tokenizer.json").write_text(json.dumps(content))
    text = "The days of the week are Monday"
    assert HuggingFaceTokenizer(str(folder)).encode(text) == HuggingFaceTokenizer(
        write_small_tokenizer(tmp_path / "plain")
    ).encode(text)


def test_a_special_token_may_be_an_object(tmp_path: Path) -> None:
    tokenizer = HuggingFaceTokenizer(write_small_tokenizer(tmp_path, bos_token={"content": "<s>", "lstrip": False}))
    assert tokenizer.bos_token_id == 1


def test_the_older_file_counts_only_where_the_newer_lacks_details(tmp_path: Path) -> None:
    older = json.dumps({"bos_token": "</s>"})
    folder = write_small_tokenizer(tmp_path / "legacy")
    (tmp_path / "legacy" / "special_tokens_map.json").write_text(older)
    assert HuggingFaceTokenizer(folder).bos_token == "</s>"
    folder = write_small_tokenizer(tmp_path / "newer", added_tokens_decoder={})
    (tmp_path / "newer" / "special_tokens_map.json").write_text(older)
    assert HuggingFaceTokenizer(folder).bos_token == "<s>"


def test_the_prefix_is_the_beginning_token_else_the_ending_one(tmp_path: Path) -> None:
    assert HuggingFaceTokenizer(write_small_tokenizer(tmp_path)).prefix_token_id == 1
    assert HuggingFaceTokenizer(write_small_tokenizer(tmp_path, bos_token=None)).prefix_token_id == 2
    with pytest.raises(SpecificationError, match="bos_token"):
        _ = HuggingFaceTokenizer(write_small_tokenizer(tmp_path, bos_token=None, eos_token=None)).prefix_token_id


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecificationError, match=r"no tokenizer\.json"):
        HuggingFaceTokenizer(str(tmp_path))


def test_a_path_that_leads_nowhere_is_not_looked_for_on_the_hub(tmp_path: Path) -> None:
    with pytest.raises(SpecificationError, match="no folder"):
        HuggingFaceTokenizer(str(tmp_path / "absent"))


def test_a_name_that_the_hub_cannot_be_asked_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(SpecificationError, match="neither a folder nor"):
        HuggingFaceTokenizer("nobody/has-this")


@pytest.mark.parametrize("content", ['{"model": ', '{"model": ' + "[" * 100_000])
@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_damaged_files_are_named(tmp_path: Path, name: str, content: str) -> None:
    folder = Path(write_small_tokenizer(tmp_path))
    (folder / name).write_text(content)
    with pytest.raises(FileFormatError, match=name.replace(".", r"\.")):
        HuggingFaceTokenizer(str(folder))


def test_a_name_that_is_nowhere_is_one_line_without_asking_a_hub_out_of_reach(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(datasets_library, "_accepts_connection", lambda _: False)
    with pytest.raises(
        SpecificationError, match=r"'nosuch/model' is neither a folder nor available .* be reached, and"
    ):
        HuggingFaceTokenizer("nosuch/model")
    assert caplog.records == []
