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
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay._util.cache import writable_folder
from assay.errors import DataNotFoundError, SpecificationError
from assay.tasks.data_errors import finding, first_line, reading, split_dict
from assay.tasks.documents import is_plain
from assay.tasks.file_hashes import DataFile, FileHashes
from assay.tasks.kept_rows import KeptRows, KeptSplits, store_rows, stored_rows
from assay.tasks.patches.datasets_library import (
    descriptions_read_once,
    hub_is_reachable,
    loading_replaced,
    no_streaming_of_matlab_files,
    quiet_datasets,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from assay.tasks.rows import Rows

_ROWS_A_BATCH = 1000
"""Rows of a parquet file that are in memory at once while it is converted."""
_NOT_IDENTIFYING = frozenset(
    {"cache_dir", "download_mode", "keep_in_memory", "num_proc", "save_infos", "split", "streaming"}
    | {"trust_remote_code", "verification_mode"}
)
"""Arguments of ``load_dataset`` that do not say which data set it is."""


def data_folder(data_dir: str | None) -> Path | None:
    """Where data sets are looked for first; None where no folder is named.

    Raises:
        SpecificationError: `data_dir` is no folder.
    """
    if data_dir is not None and not Path(data_dir).is_dir():
        raise SpecificationError(f"data_dir {data_dir!r} is no folder")
    return Path(data_dir).absolute() if data_dir is not None else None


class DataSource:
    """Loads data sets, and remembers which files they came from."""

    def __init__(self, data_dir: str | None) -> None:
        """Look in `data_dir` first, if one is given.

        Raises:
            SpecificationError: `data_dir` is no folder.
        """
        self._data_dir = data_folder(data_dir)
        self._hashes = FileHashes()
        self._cache = writable_folder("datasets")
        self._loaded: dict[str, tuple[Any, Any]] = {}
        self._library = contextlib.ExitStack()
        """What surrounds the use of the datasets library; entered when it is first used."""
        self._uses_library = False
        self._kept: dict[str, Mapping[str, Rows]] = {}
        self.files: dict[str, tuple[DataFile, ...]] = {}
        """By data set (``<path>`` or ``<path>/<config>``, or the files that a task names), in the order of loading."""

    def load(self, path: str, name: str | None = None, **options: Any) -> Any:
        """Return the data set, as ``datasets.load_dataset`` does.

        Raises:
            DataNotFoundError: The data set, its config or its split cannot be found.
            FileFormatError: One of its files is damaged.
        """
        self._use_library()
        label, which = _described(path, name, options)
        key = repr((path, name, sorted(which.items())))
        if key not in self._loaded:
            # Every task gets the same rows: each mapping of a file would count anew as this process's memory.
            self._loaded[key] = self._find(label, path, name, which)
        builder, splits = self._loaded[key]
        split = options.get("split")
        if options.get("streaming"):
            return builder.as_streaming_dataset(split=split)
        if split is None:
            return split_dict(splits, label)
        try:
            return builder.as_dataset(split=split)
        except ValueError as error:
            raise DataNotFoundError(f"data set {label}: {first_line(error)}") from None

    def kept(self, path: str, name: str | None = None, **options: Any) -> Mapping[str, Any] | None:
        """Return the rows by split without the datasets library; None where it is needed.

        The library is not needed if an earlier run loaded the data set from this folder, and nothing in it has changed.
        """
        label, which = _described(path, name, options)
        folder = self._folder(path)
        if folder is None or options.get("split") or options.get("streaming"):
            return None
        key = repr((path, name, sorted(which.items())))
        if key not in self._kept:
            known = stored_rows(folder, name, which)
            rows = None if known is None else known.open(lambda: self.load(path, name, **options))
            if known is None or rows is None:
                return None
            self._kept[key] = rows
            self.files[label] = known.sources
        return KeptSplits(self._kept[key], label)

    def _folder(self, path: str) -> Path | None:
        """Return the folder that holds a data set's files."""
        folder = Path(path).absolute() if self._data_dir is None else self._data_dir / path
        return folder if folder.is_dir() else None

    def _use_library(self) -> None:
        if not self._uses_library:
            self._uses_library = True
            for context in (quiet_datasets(), descriptions_read_once(), no_streaming_of_matlab_files()):
                self._library.enter_context(context)

    def _find(self, label: str, path: str, name: str | None, options: dict[str, Any]) -> tuple[Any, Any]:
        """Return the data set's builder and splits, from the first place that has it."""
        from datasets.packaged_modules import _PACKAGED_DATASETS_MODULES

        if path in _PACKAGED_DATASETS_MODULES:
            if any("://" in pattern for pattern in _patterns(options)):
                return self._from_hub(label, path, name, options, [])
            return self._from_files(label, path, name, options)
        looked_in: list[Path] = []
        if self._data_dir is not None:
            folder, cached = self._data_dir / path, self._data_dir / _cache_name(path)
            if folder.is_dir():
                return self._from_folder(label, folder, name, options)
            if cached.is_dir():
                return self._from_datasets_cache(label, path, name, options, self._data_dir)
            looked_in = [folder, cached]
        if Path(path).is_dir():
            return self._from_folder(label, Path(path).absolute(), name, options)
        return self._from_hub(label, path, name, options, looked_in)

    def _from_folder(self, label: str, folder: Path, name: str | None, options: dict[str, Any]) -> tuple[Any, Any]:
        """Load a folder as on the hub, and let later runs know where its rows are kept."""
        builder, splits = self._from_files(label, str(folder), name, options)
        if all(is_plain(feature) for rows in splits.values() for feature in rows.features.values()):
            store_rows(folder, name, options, KeptRows.of(splits, self.files[label]))
        return builder, splits

    def _from_files(self, label: str, path: str, name: str | None, options: dict[str, Any]) -> tuple[Any, Any]:
        """Load files on the disk, their rows kept by the files' content."""
        import datasets

        with finding(label, "from files" if _patterns(options) else f"in {path}"):
            builder = datasets.load_dataset_builder(path, name, cache_dir=str(self._cache), **options)
            by_split = {str(split): list(files) for split, files in (builder.config.data_files or {}).items()}
            content = {split: [self._hashes.sha256(file) for file in files] for split, files in by_split.items()}
            files = self._describe(file for files in by_split.values() for file in files)
        if getattr(builder.config, "batch_size", 0) is None:
            builder.config.batch_size = _ROWS_A_BATCH
        kept = str(self._cache / builder.dataset_name / _content_key(builder, content))
        with reading(label, files):
            try:
                builder.download_and_prepare(output_dir=kept)
                splits = builder.as_dataset()
            except (OSError, ValueError):
                # What an earlier run kept may be damaged. If the files are, this raises again.
                builder.download_and_prepare(output_dir=kept, download_mode="force_redownload")
                splits = builder.as_dataset()
        self.files[label] = files
        return builder, splits

    def _from_datasets_cache(
        self, label: str, path: str, name: str | None, options: dict[str, Any], root: Path
    ) -> tuple[Any, Any]:
        """Load what the datasets library once stored below `root`, which may be read-only."""
        from datasets.packaged_modules.cache.cache import Cache, _find_hash_in_cache

        with finding(label, f"in {root}"):
            config, version, digest = _find_hash_in_cache(path, name, str(root), options, None)
            stored = root / _cache_name(path) / config / version / digest
            files = self._describe(str(file) for file in stored.glob("*.arrow") if not file.name.startswith("cache-"))
            builder = Cache(
                cache_dir=str(self._mirror(root, stored, files)),
                repo_id=path,
                dataset_name=path.rpartition("/")[2],
                config_name=config,
                version=version,
                hash=digest,
            )
            builder.download_and_prepare()
        with reading(label, files):
            splits = builder.as_dataset()
        self.files[label] = files
        return builder, splits

    def _mirror(self, root: Path, stored: Path, files: Sequence[DataFile]) -> Path:
        """Return a writable folder with links to the files of `stored`, for the datasets library."""
        key = hashlib.sha256(json.dumps([str(stored), [file.sha256 for file in files]]).encode()).hexdigest()[:32]
        mirror = self._cache / f"mirror-{key}"
        target = mirror / stored.relative_to(root)
        target.mkdir(parents=True, exist_ok=True)
        for file in [*stored.glob("*.arrow"), stored / "dataset_info.json"]:
            with contextlib.suppress(FileExistsError):
                (target / file.name).symlink_to(file)
        return mirror

    def _from_hub(
        self, label: str, path: str, name: str | None, options: dict[str, Any], looked_in: list[Path]
    ) -> tuple[Any, Any]:
        import datasets

        if hub_is_reachable():
            with finding(label, "on the Hugging Face hub", looked_in):
                return self._stored(label, datasets.load_dataset_builder(path, name, **options))
        if _patterns(options):
            raise DataNotFoundError(f"data set {label} is remote, and the network is out of reach")
        cache = Path(datasets.config.HF_DATASETS_CACHE)
        if (cache / _cache_name(path)).is_dir():
            return self._from_datasets_cache(label, path, name, options, cache)
        places = " nor in ".join(str(place) for place in [*looked_in, cache / _cache_name(path)])
        raise DataNotFoundError(
            f"data set {label} is not in {places}, and the Hugging Face hub is out of reach; "
            f"put it into DIR/{path}/ and pass --data-dir DIR, or run once where the hub can be reached"
        )

    def _stored(self, label: str, builder: Any) -> tuple[Any, Any]:
        """Let the datasets library store and load what `builder` builds, in its own cache."""
        builder.download_and_prepare()
        stored = Path(builder.cache_dir).glob("*.arrow")
        self.files[label] = self._describe(str(file) for file in stored if not file.name.startswith("cache-"))
        return builder, builder.as_dataset()

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
        self._library.close()
        self._hashes.store()


_open_source: ContextVar[DataSource | None] = ContextVar("open_source", default=None)


@contextlib.contextmanager
def data_source(data_dir: str | None) -> Iterator[DataSource]:
    """Let ``datasets.load_dataset`` find data sets in `data_dir` while the context is open.

    Raises:
        SpecificationError: `data_dir` is no folder.
    """
    source = DataSource(data_dir)
    token = _open_source.set(source)
    try:
        with loading_replaced(_load_dataset):
            yield source
    finally:
        _open_source.reset(token)
        source.close()


def _load_dataset(original: Callable[..., Any], path: str, name: str | None = None, *args: Any, **options: Any) -> Any:
    """Stand in for ``load_dataset``: ask the open source.

    A task's Python may hold it (``from datasets import load_dataset``), so it can be called after its source is closed.
    """
    source = _open_source.get()
    if source is None or args:
        return original(path, name, *args, **options)
    return source.load(path, name, **options)


def _content_key(builder: Any, content: dict[str, list[str]]) -> str:
    """Return a name for the rows that `builder` makes of files with these hashes."""
    import datasets

    settings = {key: value for key, value in vars(builder.config).items() if key not in {"data_files", "data_dir"}}
    parts = [datasets.__version__, builder.name, content, repr(settings), repr(builder.info.features)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _described(path: str, name: str | None, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return what a data set is called, and the options that say which it is."""
    which = {key: value for key, value in options.items() if value is not None and key not in _NOT_IDENTIFYING}
    return _label(path, name, which), which


def _label(path: str, name: str | None, options: dict[str, Any]) -> str:
    """Return what a data set is called in messages and results."""
    return f"{path}/{name}" if name else ": ".join([path, *filter(None, [", ".join(_patterns(options))])])


def _patterns(options: dict[str, Any]) -> list[str]:
    """Return the file names and patterns that a task itself gives, whichever way it writes them."""

    def flat(value: Any) -> list[str]:
        if isinstance(value, dict):
            value = list(value.values())
        return [text for item in value for text in flat(item)] if isinstance(value, list | tuple) else [str(value)]

    given = options.get("data_files") or options.get("data_dir")
    return flat(given) if given else []


def _cache_name(path: str) -> str:
    """Return the folder that the datasets library's cache gives a data set."""
    from datasets.naming import camelcase_to_snakecase

    owner, _, name = path.rpartition("/")
    return f"{owner}___{camelcase_to_snakecase(name)}" if owner else str(camelcase_to_snakecase(name))
