"""Reads and checks results files."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from assay._util.paths import why_unreadable
from assay.errors import FileFormatError
from assay.results.document import ResultsDocument


def read_results(path: str | Path) -> ResultsDocument:
    """Read a results file, Assay's or lm-eval's.

    Raises:
        FileFormatError: the file is missing, damaged or not a results file; the message names the place in it.
    """
    try:
        document = json.loads(Path(path).read_bytes())
    except FileNotFoundError:
        raise FileFormatError(f"there is no results file {path}") from None
    except OSError as error:
        raise FileFormatError(f"cannot read the results file {path}: {why_unreadable(error)}") from error
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"cannot read {path} as a results file: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("results"), dict):
        raise FileFormatError(f"{path} is no results file: it has no section 'results'")
    if not isinstance(document.get("assay"), dict):  # another program's data under the same key
        document["assay"] = None
    try:
        return msgspec.convert(document, ResultsDocument)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise FileFormatError(f"{path} is no results file, or damaged: {error}") from error
