"""A server watched from visit to visit: what adds up, what gives alarm, and what the log survives."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Any

import pytest

from assay.cli import main
from assay.errors import FileFormatError, JournalLockedError, SpecificationError, UnsupportedTaskError
from assay.identity import Fingerprint, Visit, WatchOptions, watch, write_fingerprint
from assay.types import ModelSpec
from tests.identity.test_fingerprint import model, shifted, taken
from tests.servers.scripted import ScriptedServer

HOURLY = WatchOptions(every=60)


@pytest.fixture(scope="module")
def record() -> Fingerprint:
    return taken(model())


def visited(record: Fingerprint, answer: Any, log: Path, options: WatchOptions = HOURLY) -> Visit:
    with ScriptedServer(answer=answer, models=["scripted"]) as server:
        return watch(record, ModelSpec(base_url=server.url, model="scripted"), log, options)


def lines(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_a_healthy_server_is_quiet_and_each_visit_is_a_line(record: Fingerprint, tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert [visited(record, model(), log).verdict for _ in range(3)] == ["quiet"] * 3
    assert [line["requests"] for line in lines(log)] == [3, 3, 3]


def test_a_change_gives_alarm_and_then_the_evidence_begins_anew(record: Fingerprint, tmp_path: Path) -> None:
    log = tmp_path / "log"
    visited(record, model(), log)
    found = [visited(record, model(shifted(0.3)), log) for _ in range(3)]
    assert "alarm" in [visit.verdict for visit in found]
    assert next(visit for visit in found if visit.verdict == "alarm").state == ()


def test_evidence_adds_up_over_visits(record: Fingerprint, tmp_path: Path) -> None:
    options = WatchOptions(every=60, requests=1, false_alarms=0.01)
    verdicts = [visited(record, model(shifted(0.3)), tmp_path / "log", options) for _ in range(6)]
    evidence = [visit.evidence for visit in verdicts]
    assert verdicts[0].verdict == "quiet"
    assert evidence[1] > evidence[0]
    assert "alarm" in [visit.verdict for visit in verdicts]


def test_another_prompt_length_is_an_alarm_at_once(record: Fingerprint, tmp_path: Path) -> None:
    visit = visited(record, model(more_tokens=1), tmp_path / "log")
    assert (visit.verdict, visit.requests) == ("alarm", 1)
    assert "1 prompt token more" in visit.reason


def test_a_dead_server_is_logged_and_the_evidence_kept(record: Fingerprint, tmp_path: Path) -> None:
    log = tmp_path / "log"
    before = visited(record, model(), log)
    visit = watch(record, ModelSpec(base_url="http://127.0.0.1:9", model="scripted"), log, HOURLY)
    assert (visit.verdict, visit.exit_code, visit.state) == ("invalid", 4, before.state)
    assert len(lines(log)) == 2


def test_other_options_begin_anew(record: Fingerprint, tmp_path: Path) -> None:
    log = tmp_path / "log"
    first = visited(record, model(), log)
    assert visited(record, model(), log).evidence > first.evidence
    other = WatchOptions(every=60, tolerate=0.5)
    alone = visited(record, model(), tmp_path / "alone", other)
    assert visited(record, model(), log, other).evidence == pytest.approx(alone.evidence)


def test_an_unfinished_line_is_dropped_and_the_visits_before_it_count(record: Fingerprint, tmp_path: Path) -> None:
    log, whole = tmp_path / "log", tmp_path / "whole"
    visited(record, model(), log)
    whole.write_bytes(log.read_bytes())
    with log.open("ab") as file:
        file.write(log.read_bytes()[:30])
    assert visited(record, model(), log).evidence == pytest.approx(visited(record, model(), whole).evidence)
    assert len(lines(log)) == 2


@pytest.mark.parametrize("content", ["notes of mine", '{"a": 1}\n', "[1, 2]\n"])
def test_a_file_of_another_kind_is_refused_and_kept(record: Fingerprint, tmp_path: Path, content: str) -> None:
    log = tmp_path / "log"
    log.write_text(content)
    with pytest.raises(FileFormatError, match="name another file"):
        visited(record, model(), log)
    assert log.read_text() == content


def test_two_visits_at_once_are_refused(record: Fingerprint, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(JournalLockedError, match="must not overlap"):
            visited(record, model(), log)


@pytest.mark.parametrize("values", [{"every": 0}, {"every": 60, "requests": 0}, {"every": 60, "false_alarms": 1e9}])
def test_what_makes_no_sense_is_refused(record: Fingerprint, tmp_path: Path, values: dict[str, float]) -> None:
    with pytest.raises(SpecificationError, match="make no watch"):
        visited(record, model(), tmp_path / "log", WatchOptions(**values))  # type: ignore[arg-type]


def test_a_server_without_log_probabilities_is_refused(record: Fingerprint, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedTaskError, match="no log-probabilities"):
        visited(record, lambda _: "text", tmp_path / "log")


def test_the_command(record: Fingerprint, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_fingerprint(tmp_path / "record.json", record)
    for answer, code, word in ((model(), 0, "QUIET"), (model(more_tokens=2), 1, "ALARM")):
        with ScriptedServer(answer=answer, models=["scripted"]) as server:
            where = [str(tmp_path / "record.json"), str(tmp_path / "log"), "--base-url", server.url, "--every", "10"]
            with pytest.raises(SystemExit) as ended:
                main(["watch", *where])
            assert ended.value.code == code
        assert capsys.readouterr().out.startswith(word)
