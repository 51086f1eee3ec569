from __future__ import annotations

import subprocess
import sys

import assay.helm


def test_importing_it_imports_nothing_heavy() -> None:
    code = (
        "import sys, assay.helm;"
        "print(sorted({name.split('.')[0] for name in sys.modules} & "
        "{'torch', 'transformers', 'sklearn', 'nltk', 'numpy', 'scipy', 'lm_eval', 'datasets', 'rouge_score'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    assert [name for name in assay.helm.__all__ if not hasattr(assay.helm, name)] == []
