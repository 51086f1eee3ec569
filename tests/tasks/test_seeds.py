"""Seeds are read as lm-eval reads them."""

from __future__ import annotations

import pytest

from assay.errors import SpecificationError
from assay.tasks.seeds import parse_seeds


@pytest.mark.parametrize("text", ["42", "1,2,3", "1, 2,3,4", "0,1234,1234,1234"])
def test_seeds_are_lm_evals(text: str) -> None:
    from lm_eval._cli.utils import _int_or_none_list_arg_type

    names = ("random_seed", "numpy_seed", "torch_seed", "fewshot_seed")
    theirs = _int_or_none_list_arg_type(3, 4, "0,1234,1234,1234", text)
    assert parse_seeds(text) == dict(zip(names, theirs, strict=True))


@pytest.mark.parametrize("text", ["", "1,2", "1,2,3,4,5", "0,None,8,52", "-1", "one"])
def test_what_is_no_seed_is_refused(text: str) -> None:
    with pytest.raises(SpecificationError, match=f"the seed '{text}' cannot be read"):
        parse_seeds(text)
