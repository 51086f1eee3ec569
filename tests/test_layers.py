"""Imports point down: from the command line to the vocabulary, and never back."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import assay

SOURCE = Path(assay.__file__).parent

LAYERS = (
    ("__main__",),
    ("cli", "pytest_plugin"),
    ("__init__",),
    ("runners",),
    ("reports", "demo"),
    ("gate", "helm", "lm_eval_command"),
    ("identity",),
    ("evaluation",),
    ("diagnosis",),
    ("checks",),
    ("rescoring", "lm_eval_process"),
    ("runs",),
    ("results",),
    ("scoring", "scheduling", "inprocess", "flexllmgen"),
    ("specification", "progress"),
    ("tasks",),
    ("client", "journal", "sandbox", "stats"),
    ("types", "_util"),
    ("errors", "_version"),
)
"""From top to bottom; packages of one layer do not import each other."""
DEPTH = {name: depth for depth, layer in enumerate(LAYERS) for name in layer}
MOST_MODULES_AT_THE_TOP = 10


def modules() -> dict[str, Path]:
    found = {}
    for file in SOURCE.rglob("*.py"):
        parts = file.relative_to(SOURCE).with_suffix("").parts
        found[".".join(("assay", *(parts[:-1] if parts[-1] == "__init__" else parts)))] = file
    return found


def imports(file: Path, known: dict[str, Path]) -> set[str]:
    """Every module of Assay that the file imports, anywhere in it and for whatever purpose."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in known}
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            found |= {name if (name := f"{node.module}.{alias.name}") in known else node.module for alias in node.names}
    return found


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def test_every_package_has_its_layer() -> None:
    assert {room(module) for module in modules()} == set(DEPTH)


def test_no_import_points_up() -> None:
    known = modules()
    against = [
        f"{module} imports {imported}"
        for module, file in known.items()
        for imported in imports(file, known)
        if room(module) != room(imported) and imported != "assay" and DEPTH[room(module)] >= DEPTH[room(imported)]
    ]
    assert not against, f"see LAYERS in {Path(__file__).name} for what may import what"


def test_no_files_import_each_other_in_a_circle() -> None:
    known = modules()
    graph = {module: imports(file, known) - {module} for module, file in known.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(" -> ".join(error.args[1])) from None


def test_only_the_vocabulary_and_the_way_in_are_at_the_top() -> None:
    assert len(list(SOURCE.glob("*.py"))) <= MOST_MODULES_AT_THE_TOP


def test_every_package_says_what_belongs_in_it_and_what_it_may_import() -> None:
    for package in SOURCE.glob("*/__init__.py"):
        if package.parent.name == "cli":
            continue
        words = ast.get_docstring(ast.parse(package.read_text(encoding="utf-8"))) or ""
        assert "may import" in words, f"{package.parent.name}: what may it import?"
