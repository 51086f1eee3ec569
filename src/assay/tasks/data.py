"""Where the tasks' data sets come from: a folder on the disk first, the Hugging Face hub only for what is not there.

While a `data_source` is open, ``datasets.load_dataset`` looks for a data set

1. in ``DATA_DIR/<owner>/<name>/``, laid out as on the hub,
2. in ``DATA_DIR/<owner>___<name>/``, a cache of the datasets library,
3. where the task itself names files or a folder of its own,
4. on the hub, or in the datasets library's own cache where the hub is out of reach.

Files on the disk are parsed once and kept under a name made of their *content*: a changed file is always seen (the
datasets library's cache goes by folder and serves the old rows), an unchanged one is never parsed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from assay.cache import cache_dir
from assay.errors import DataNotFoundError, FileFormatError, SpecificationError
from assay.tasks.file_hashes import FileHashes
from assay.tasks.hub import hub_is_reachable, quiet_datasets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_ROWS_A_BATCH = 1000
"""Rows of a parquet file that are in memory at once while it is converted."""
_NOT_FOR_BUILDERS = ("split", "streaming", "keep_in_memory", "download_mode", "verification_mode", "num_proc")
"""Arguments of ``load_dataset`` that are not about which data set it is."""


class DataFile(msgspec.Struct, frozen=True):
    """One file that a run's documents were read from."""

    path: str
    sha256: str
    size: int
    """Bytes."""


class DataSource:
    """Loads data sets, and remembers which files they came from."""

    def __init__(self, data_dir: str | None) -> None:
        """Look in `data_dir` first, if one is given.

        Raises:
            SpecificationError: `data_dir` is no folder.
        """
        if data_dir is not None and not Path(data_dir).is_dir():
            raise SpecificationError(f"data_dir {data_dir!r} is no folder")
        self._data_dir = Path(data_dir).absolute() if data_dir is not None else None
        self._hashes = FileHashes()
        self._cache = _writable_cache()
        self._builders: dict[str, Any] = {}
        self.files: dict[str, tuple[DataFile, ...]] = {}
        """By data set (``<path>`` or ``<path>/<config>``), in the order of loading."""

    def load(self, path: str, name: str | None = None, **options: Any) -> Any:
        """Return the data set, as ``datasets.load_dataset`` does.

        Raises:
            DataNotFoundError: The data set, its config or its split is nowhere to be had.
            FileFormatError: One of its files is damaged.
        """
        about = {key: value for key, value in options.items() if key not in _NOT_FOR_BUILDERS}
        about = {key: value for key, value in about.items() if value is not None and key != "cache_dir"}
        label = f"{path}/{name}" if name else path
        key = repr((path, name, sorted(about.items(), key=lambda item: item[0])))
        if key not in self._builders:
            self._builders[key] = self._builder(label, path, name, about)
        builder = self._builders[key]
        split = options.get("split")
        if options.get("streaming"):
            return builder.as_streaming_dataset(split=split)
        if split is not None:
            try:
                return builder.as_dataset(split=split)
            except ValueError as error:
                raise DataNotFoundError(f"data set {label}: {_first_line(error)}") from None
        return _split_dict(builder.as_dataset(), label)

    def _builder(self, label: str, path: str, name: str | None, options: dict[str, Any]) -> Any:
        """Return the data set's prepared builder, from the first place that has it."""
        from datasets.packaged_modules import _PACKAGED_DATASETS_MODULES

        if path in _PACKAGED_DATASETS_MODULES:
            return self._from_files(label, path, name, options)
        looked_in = []
        if self._data_dir is not None:
            folder = self._data_dir / path
            if folder.is_dir():
                return self._from_files(label, str(folder), name, options)
            if (self._data_dir / _cache_name(path)).is_dir():
                return self._from_datasets_cache(label, path, name, options, self._data_dir)
            looked_in += [str(folder), str(self._data_dir / _cache_name(path))]
        if Path(path).is_dir():
            return self._from_files(label, str(Path(path).absolute()), name, options)
        return self._from_hub(label, path, name, options, looked_in)

    def _from_files(self, label: str, path: str, name: str | None, options: dict[str, Any]) -> Any:
        """Return a builder over files on the disk, its rows kept by the files' content."""
        import datasets

        root = self._cache
        with _told(label, path):
            builder = datasets.load_dataset_builder(path, name, cache_dir=str(root), **options)
            by_split: dict[str, list[str]] = {
                str(split): list(files) for split, files in (builder.config.data_files or {}).items()
            }
            remote = [file for files in by_split.values() for file in files if "://" in file]
            if not remote:
                self.files[label] = self._describe(file for files in by_split.values() for file in files)
                content = {split: [self._hashes.sha256(file) for file in files] for split, files in by_split.items()}
                key = _content_key(builder, content)
                if getattr(builder.config, "batch_size", 0) is None:
                    builder.config.batch_size = _ROWS_A_BATCH
                builder.download_and_prepare(output_dir=str(root / builder.dataset_name / key))
                return builder
        return self._from_hub(label, path, name, options, [])

    def _from_datasets_cache(self, label: str, path: str, name: str | None, options: dict[str, Any], root: Path) -> Any:
        """Return a builder over what the datasets library once stored below `root`."""
        from datasets.packaged_modules.cache.cache import Cache

        with _told(label, str(root)):
            builder = Cache(
                cache_dir=str(root),
                repo_id=path,
                dataset_name=path.rpartition("/")[2],
                config_name=name,
                version="auto",
                hash="auto",
                **options,
            )
            builder.download_and_prepare()
        self.files[label] = self._describe(str(file) for file in sorted(Path(builder.cache_dir).glob("*.arrow")))
        return builder

    def _from_hub(self, label: str, path: str, name: str | None, options: dict[str, Any], looked_in: list[str]) -> Any:
        import datasets

        if hub_is_reachable():
            with _told(label, "the Hugging Face hub", looked_in):
                builder = datasets.load_dataset_builder(path, name, **options)
                builder.download_and_prepare()
            self.files[label] = self._describe(str(file) for file in sorted(Path(builder.cache_dir).glob("*.arrow")))
            return builder
        cache = Path(datasets.config.HF_DATASETS_CACHE)
        if (cache / _cache_name(path)).is_dir() and "/" in path:
            return self._from_datasets_cache(label, path, name, options, cache)
        raise DataNotFoundError(_not_found(label, path, [*looked_in, str(cache / _cache_name(path))]))

    def _describe(self, files: Iterator[str]) -> tuple[DataFile, ...]:
        return tuple(
            DataFile(self._shown(file), self._hashes.sha256(file), os.path.getsize(file)) for file in sorted(set(files))
        )

    def _shown(self, file: str) -> str:
        """Return a file's path as results show it: below the data folder, if it is there."""
        if self._data_dir is not None and Path(file).is_relative_to(self._data_dir.resolve()):
            return str(Path(file).relative_to(self._data_dir.resolve()))
        return file

    def close(self) -> None:
        """Store what is worth remembering for the next run."""
        self._hashes.store()


_open_source: ContextVar[DataSource | None] = ContextVar("open_source", default=None)


@contextlib.contextmanager
def data_source(data_dir: str | None) -> Iterator[DataSource]:
    """Let ``datasets.load_dataset`` find data sets in `data_dir` while the context is open.

    Raises:
        SpecificationError: `data_dir` is no folder.
    """
    source = DataSource(data_dir)
    import datasets

    original = datasets.load_dataset
    token = _open_source.set(source)
    datasets.load_dataset = _dispatcher(original)
    try:
        with quiet_datasets():
            yield source
    finally:
        datasets.load_dataset = original
        _open_source.reset(token)
        source.close()


def _dispatcher(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a ``load_dataset`` that asks the open source.

    A task's Python may keep it by ``from datasets import load_dataset``, so it outlives the source of its making.
    """

    def load_dataset(path: str, name: str | None = None, *args: Any, **options: Any) -> Any:
        source = _open_source.get()
        if source is None or args:
            return original(path, name, *args, **options)
        return source.load(path, name, **options)

    return load_dataset


def _split_dict(splits: Mapping[str, Any], label: str) -> Any:
    """Return a ``DatasetDict`` of its own over shared rows, which says what is missing where a split is."""
    import copy

    import datasets

    class Splits(datasets.DatasetDict):  # type: ignore[misc]
        def __missing__(self, split: str) -> Any:
            raise DataNotFoundError(
                f"data set {label} has no split {str(split)!r} (it has: {', '.join(map(str, self))}); "
                "a task file that includes the task's can name another, or null for none"
            )

    return Splits({split: copy.copy(rows) for split, rows in splits.items()})


def _content_key(builder: Any, content: dict[str, list[str]]) -> str:
    """Return a name for the rows that `builder` makes of files with these hashes."""
    import datasets

    settings = {key: value for key, value in vars(builder.config).items() if key not in {"data_files", "data_dir"}}
    parts = [datasets.__version__, builder.name, content, repr(settings), repr(builder.info.features)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _cache_name(path: str) -> str:
    """Return the folder that the datasets library's cache gives a data set."""
    from datasets.naming import camelcase_to_snakecase

    owner, _, name = path.rpartition("/")
    return f"{owner}___{camelcase_to_snakecase(name)}" if owner else str(camelcase_to_snakecase(name))


def _writable_cache() -> Path:
    folder = cache_dir() / "datasets"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return _process_folder()
    return folder


def _process_folder() -> Path:
    """Return a folder that goes with this process, for rows that are mapped into its memory."""
    import atexit

    folder = tempfile.TemporaryDirectory(prefix="assay-datasets-", ignore_cleanup_errors=True)
    atexit.register(folder.cleanup)
    return Path(folder.name)


# -- errors -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _told(label: str, where: str, looked_in: list[str] | None = None) -> Iterator[None]:
    """Turn what the datasets library raises into one line for the user."""
    from datasets.exceptions import DatasetGenerationError

    try:
        yield
    except DatasetGenerationError as error:
        raise FileFormatError(
            f"data set {label}: a file of it in {where} is damaged: {_first_line(error.__cause__ or error)}"
        ) from None
    except (ValueError, OSError) as error:
        before = f" (not in {' or '.join(looked_in)} either)" if looked_in else ""
        raise DataNotFoundError(
            f"data set {label} cannot be loaded from {where}: {_first_line(error)}{before}"
        ) from None


def _not_found(label: str, path: str, looked_in: list[str]) -> str:
    return (
        f"data set {label} is neither in {' nor in '.join(looked_in)}, and the Hugging Face hub is out of reach; "
        f"put it into DIR/{path}/ and pass --data-dir DIR, or run once with the hub in reach"
    )


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
