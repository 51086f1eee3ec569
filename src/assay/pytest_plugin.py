"""pytest plugin: a model server's quality as a test.

::

    @pytest.mark.assay(task="gsm8k_cot", metric="exact_match,strict-match", min=0.6)
    def test_quality(): ...

    def test_release(assay_gate):
        assay_gate("gate.toml")

The server is named by the policy, or by ``assay_base_url`` and ``assay_model`` in pytest's configuration or
``--assay-base-url`` and ``--assay-model`` on the command line. A check that does not pass fails the test, with the
report in place of a traceback; so does one that could not be judged.
"""

from __future__ import annotations

import logging
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from assay.gate.policy import Policy
    from assay.gate.run import GateReport

_OPTIONS = {
    "assay_base_url": "address of the server to be judged; several, or @FILE with one a line, are replicas",
    "assay_model": "name under which the server serves the model",
    "assay_data_dir": "data sets on disk",
    "assay_include_path": "folder with task YAML of your own",
    "assay_output_dir": "where results go (default: assay-results)",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options, each for the command line and the configuration file."""
    group = parser.getgroup("assay", "judging a model server")
    for name, what in _OPTIONS.items():
        parser.addini(name, what)
        group.addoption(f"--{name.replace('_', '-')}", dest=name, help=what)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line(
        "markers",
        "assay(policy=None, *, task, metric, min, max, baseline, margin, range, alpha, identity): judge a server first",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Run the gates of the test's marks, then its body."""
    marks = list(item.iter_markers("assay"))
    for mark in reversed(marks):
        AssayGate(item.config)(*mark.args, **mark.kwargs)
    return (yield)


@pytest.fixture
def assay_gate(pytestconfig: pytest.Config) -> AssayGate:
    """Judge a server by a policy file, or by one check: ``assay_gate("gate.toml")``."""
    return AssayGate(pytestconfig)


class AssayGate:
    """Runs a gate, and fails the test that calls it unless every check passes."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def __call__(self, policy: str | Path | None = None, **check: Any) -> GateReport:
        """Run a policy file, or one check given as keywords.

        Args:
            policy: path of a policy, relative to pytest's root folder.
            check: a check's keys as in a policy's ``[[checks]]`` table.

        Returns:
            The report, if all checks passed.

        Raises:
            pytest.fail.Exception: a check failed or could not be judged; or the policy or check makes no sense.
        """
        __tracebackhide__ = True
        from assay.errors import AssayError
        from assay.gate.run import run_gate
        from assay.results.check_results import Verdict

        refusal = None
        try:
            name, demanded = self._policy(policy, check)
            with _lm_eval_silenced():
                report = run_gate(demanded, name=name)
        except AssayError as error:
            refusal = str(error)
        if refusal is not None:  # outside the handler: pytest would show the error that was handled, too
            pytest.fail(f"assay: {refusal}", pytrace=False)
        if report.verdict is not Verdict.PASS:
            pytest.fail(_failure_text(report), pytrace=False)
        for model in report.models:
            if model.identity is not None and model.identity.verdict is not Verdict.PASS:
                warnings.warn(f"assay: {model.name}: identity: {model.identity.words}", stacklevel=2)
            if model.triage is not None:
                warnings.warn(f"assay: {model.name}: {model.triage}", stacklevel=2)
        return report

    def _policy(self, path: str | Path | None, check: dict[str, Any]) -> tuple[str, Policy]:
        from assay.errors import SpecificationError
        from assay.gate.policy import Overrides, load_policy, override, policy_of_check

        overrides = Overrides(
            base_urls=tuple((self._option("assay_base_url") or "").split()),
            models=(model,) if (model := self._option("assay_model")) else (),
            data_dir=self._option("assay_data_dir"),
            output_dir=self._option("assay_output_dir"),
        )
        if (path is None) == (not check):
            raise SpecificationError(
                "name a policy file, or write one check: task, metric and min, max or baseline; or identity={…}"
            )
        if path is not None:
            file = self._config.rootpath / path
            return str(path), load_policy(file, overrides)
        base_url, model = self._option("assay_base_url"), self._option("assay_model")
        if base_url is None or model is None:
            raise SpecificationError(
                "which server? set assay_base_url and assay_model in pytest's configuration, "
                "or pass --assay-base-url and --assay-model"
            )
        include_path = self._option("assay_include_path")
        policy = policy_of_check(base_url, model, check, include_path)
        return f"{check.get('task', 'identity')}", override(policy, overrides)

    def _option(self, name: str) -> str | None:
        return self._config.getoption(name) or self._config.getini(name) or None


@contextmanager
def _lm_eval_silenced() -> Iterator[None]:
    """Keep lm-eval's remarks on its own task files out of the failing test's report."""
    logger = logging.getLogger("lm_eval")
    before, logger.propagate = logger.propagate, False
    try:
        yield
    finally:
        logger.propagate = before


def _failure_text(report: GateReport) -> str:
    from assay._util.text import printable
    from assay.reports.gate import asked_words
    from assay.reports.remarks import remarks_on

    lines = [f"assay gate: {report.verdict}"]
    for model in report.models:
        lines.append(printable(f"{model.model} at {model.base_url}"))
        if model.identity is not None:
            lines.append(f"  identity: {printable(model.identity.words, 1000)}")
        elif model.error is not None and not model.checks:
            lines.append(f"  identity: invalid: {printable(model.error, 1000)}")
        for check in model.checks:
            lines.append(
                f"  {check.verdict.upper():12} {printable(f'{check.task} {check.metric} {check.demand}', 400)}"
            )
            lines.append(f"               {printable(check.reason, 1000)}")
        if model.stopped_early is not None:
            lines.append(f"  {asked_words(model.stopped_early)}")
        lines += [f"  {words}" for words in remarks_on(model)]
        if model.triage is not None:
            lines.append(f"  {printable(model.triage, 1000)}")
        if model.results_file is not None:
            lines.append(f"  results: {printable(model.results_file, 1000)}")
    return "\n".join(lines)
