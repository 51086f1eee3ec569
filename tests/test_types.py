"""The vocabulary's few rules."""

import pytest

from assay.types import MetricKey, score_keys


@pytest.mark.parametrize("text", ["exact_match,get-answer", "acc_stderr,none", "f1,a,b", "acc,", ",none"])
def test_a_metric_key_is_written_as_it_is_read(text: str) -> None:
    assert str(MetricKey.read(text)) == text


def test_a_metric_key_knows_its_standard_error() -> None:
    key = MetricKey.read("f1,a,b")
    assert key == ("f1", "a,b")
    assert not key.is_stderr
    assert str(key.stderr) == "f1_stderr,a,b"
    assert key.stderr.is_stderr


def test_what_has_no_comma_is_no_metric_key() -> None:
    with pytest.raises(ValueError, match="'alias' is no metric key"):
        MetricKey.read("alias")


def test_score_keys_leave_standard_errors_and_names_out() -> None:
    entry = {"name": "t", "alias": "t", "sample_len": 3, "acc,none": 1.0, "acc_stderr,none": 0.1, "f1,a,b": 0.2}
    assert score_keys(entry) == ["acc,none", "f1,a,b"]
