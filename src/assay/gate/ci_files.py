"""Files that run a gate in continuous integration, for three systems."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path


class CI(StrEnum):
    """A system of continuous integration."""

    GITHUB = "github"
    GITLAB = "gitlab"
    BUILDKITE = "buildkite"


PLACES = {
    CI.GITHUB: Path(".github/workflows/assay.yml"),
    CI.GITLAB: Path("assay.gitlab-ci.yml"),
    CI.BUILDKITE: Path(".buildkite/assay.yml"),
}
"""Where each system expects the file."""


def system_of(folder: Path) -> CI:
    """The CI system that a repository uses; GitHub's if it has files of none."""
    if (folder / ".gitlab-ci.yml").exists():
        return CI.GITLAB
    return CI.BUILDKITE if (folder / ".buildkite").is_dir() else CI.GITHUB


def ci_file(system: CI, policy: str) -> str:
    """The content of a CI file that runs the gate in the file `policy`."""
    return _TEXTS[system].format(policy=policy, gate=_GATE.format(policy=policy))


_GATE = 'assay gate {policy} --fresh --base-url "$MODEL_SERVER_URL" --junit assay-gate.xml'
_GITHUB = """\
# Start the server before the gate, or set MODEL_SERVER_URL to one that runs.
name: Model gate
on: [pull_request]
jobs:
  gate:
    runs-on: ubuntu-latest
    env:
      MODEL_SERVER_URL: ${{{{ vars.MODEL_SERVER_URL }}}}
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with: {{python-version: "3.12"}}
      - run: pip install "${{{{ vars.ASSAY || 'assay' }}}}"   # a wheel, a checkout, or git+https://…@TAG
      - run: {gate}
"""
_GITLAB = """\
# In .gitlab-ci.yml: include: assay.gitlab-ci.yml. Set MODEL_SERVER_URL and ASSAY as CI variables.
assay-gate:
  image: python:3.12-slim
  script:
    - pip install --quiet "$ASSAY"    # a wheel, a checkout, or git+https://…@TAG
    - {gate}
  allow_failure: {{exit_codes: [3]}}    # inconclusive
  artifacts:
    when: always
    reports: {{junit: assay-gate.xml}}
"""
_BUILDKITE = """\
# buildkite-agent pipeline upload .buildkite/assay.yml. Set MODEL_SERVER_URL and ASSAY in the environment.
steps:
  - label: model gate
    commands:
      - pip install --quiet "$$ASSAY"    # a wheel, a checkout, or git+https://…@TAG
      - {gate}
    soft_fail: [{{exit_status: 3}}]    # inconclusive
    artifact_paths: assay-gate.xml
"""
_TEXTS = {CI.GITHUB: _GITHUB, CI.GITLAB: _GITLAB, CI.BUILDKITE: _BUILDKITE.replace('"$MODEL', '"$$MODEL')}
