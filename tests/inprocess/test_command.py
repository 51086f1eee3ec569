"""What ``assay run`` says of options that do not go together."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from assay.cli.run import run


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--model", "hf:m", "--base-url", "http://localhost:1"], "answers in this process: leave it out"),
        (["--model", "m", "--dtype", "float32", "--base-url", "http://localhost:1"], "--dtype is for models in this"),
        (["--model", "hf:m", "--dtype", "int3"], "'int3' is not one of"),
        (["--model", "hf:m", "--batch-size", "many"], "'many' is neither a whole number nor 'auto'"),
    ],
)
def test_options_of_the_other_kind_of_model_are_refused(options: list[str], said: str) -> None:
    done = CliRunner().invoke(run, ["gsm8k", *options], standalone_mode=False)
    assert said in str(done.exception)


def test_a_batch_of_nothing_is_refused() -> None:
    done = CliRunner().invoke(run, ["gsm8k", "--model", "hf:m", "--batch-size", "0"], standalone_mode=False)
    assert "batch_size is 0; it must be greater than 0" in str(done.exception)
