"""The benchmarks run and tell what they should; how fast anything is, is not asserted here."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from benchmarks import backlog, batches, processes, settle, single, threads, wakeups, workers
from benchmarks.__main__ import NAMES, main
from benchmarks.backlog_calls import CALLS, CALLS_BESIDE, CALLS_OF_A_KEY, GLANCES
from benchmarks.raw import RawTable
from benchmarks.report import Report, Row
from benchmarks.values import SIZE, encoded, job
from localqueue.codec import JSON_CODEC


def test_batches_are_compared_with_raw_statements_in_both_durabilities(tmp_path: Path) -> None:
    (report,) = batches.run(tmp_path, batches=2, rounds=2)

    assert [row.what for row in report.rows] == [
        "put_many, relaxed",
        "get_messages + ack_many, relaxed",
        "put_many, full",
        "get_messages + ack_many, full",
    ]
    assert all(row.at_least == 0.3 for row in report.rows)
    assert_measured([report])


def test_single_messages_have_a_target_for_each_durability(tmp_path: Path) -> None:
    (report,) = single.run(tmp_path, messages=5, rounds=2)

    assert [row.at_least for row in report.rows] == [0.35, 0.4, 0.8, 0.7]
    assert_measured([report])


def test_settling_together_is_compared_with_one_by_one(tmp_path: Path) -> None:
    (report,) = settle.run(tmp_path, messages=40, rounds=2)

    assert [(row.what, row.at_least) for row in report.rows] == [
        ("prefetch 20, relaxed", 5.0),
        ("prefetch 100, relaxed", 5.0),
        ("prefetch 20, full", 10.0),
        ("prefetch 100, full", 10.0),
    ]
    assert_measured([report])


def test_workers_are_compared_with_one_by_one_with_each_other_and_with_a_backlog(
    tmp_path: Path,
) -> None:
    reports = list(workers.run(tmp_path, messages=100, waiting=2000, wakes=5, rounds=1))

    assert [[(row.what, row.target) for row in report.rows] for report in reports] == [
        [
            ("thread worker, relaxed", "≥ 4"),
            ("asyncio worker, relaxed", ""),
            ("process worker, relaxed", ""),
            ("thread worker, full", "≥ 10"),
            ("asyncio worker, full", ""),
            ("process worker, full", ""),
        ],
        [
            ("thread worker, full against relaxed", "≥ 0.6"),
            ("asyncio against thread worker, relaxed", "≥ 0.7"),
            ("asyncio against thread worker, full", "≥ 0.7"),
            (
                "thread worker with 2,000 waiting against 1,000, relaxed, both journals full",
                "≥ 0.8",
            ),
            ("thread worker with 2,000 waiting against 1,000, relaxed, default journals", "≥ 0.8"),
        ],
        [
            ("half of all, relaxed", "< 1 ms"),
            ("99 of 100, relaxed", "< 5 ms"),
            ("half of all, full", "< 1 ms"),
            ("99 of 100, full", "< 5 ms"),
        ],
    ]
    assert_measured(reports)


def test_many_producers_are_compared_with_one(tmp_path: Path) -> None:
    (report,) = threads.run(tmp_path, messages=64, rounds=2)

    assert [(row.what, row.at_least) for row in report.rows] == [
        ("16 threads", 4.0),
        ("64 coroutines", 10.0),
    ]
    assert_measured([report])


def test_processes_on_one_file_are_asked_for_errors_waits_and_shares(tmp_path: Path) -> None:
    (report,) = processes.run(tmp_path, duration=0.3, processes=2)

    assert [row.target for row in report.rows] == ["≤ 0", "< 2000 ms", "≥ 0.5"] * 2
    assert [row.ratio for row in report.rows[::3]] == [0, 0]
    assert report.remarks == []
    for row in (report.rows[1], report.rows[2], report.rows[4], report.rows[5]):
        assert row.measured is not None
        assert row.against is not None
        assert 0 < row.against <= row.measured


def test_wake_ups_are_compared_with_a_byte_through_a_fifo(tmp_path: Path) -> None:
    (report,) = wakeups.run(tmp_path, messages=5, idle=0.1)

    assert [row.target for row in report.rows] == ["< 1 ms", "< 5 ms", "≤ 0.2"] * 2
    for usual, longest, cpu in (report.rows[:3], report.rows[3:]):
        assert usual.measured is not None
        assert longest.measured is not None
        assert 0 < usual.measured <= longest.measured
        assert cpu.ratio >= 0


def test_every_call_is_measured_in_front_of_and_beside_a_backlog(tmp_path: Path) -> None:
    reports = list(backlog.run(tmp_path, size=600, few=300, times=2, rounds=1))

    asked = [CALLS, CALLS, CALLS + CALLS_OF_A_KEY, CALLS + CALLS_BESIDE, GLANCES]
    assert [[row.what for row in report.rows] for report in reports] == [
        [call.name for call in calls] for calls in asked
    ]
    *with_targets, told = reports
    assert all(row.at_most == 1.3 for report in with_targets for row in report.rows)
    assert all(row.met is None for row in told.rows)
    assert_measured(reports)
    assert list(tmp_path.iterdir()) == []


def test_the_calls_leave_a_queue_as_long_as_they_found_it(tmp_path: Path) -> None:
    for number, scenario in enumerate(backlog.SCENARIOS):
        filled = scenario.fill(tmp_path / f"{number}.sqlite3", 300)
        before = filled.queue.stats()

        for call in scenario.calls:
            call.restore(filled, call.run(filled, call.prepare(filled)))
            after = filled.queue.stats()
            assert (after.ready, after.delayed, after.inflight, after.dead) == (
                before.ready, before.delayed, before.inflight, before.dead,
            ), call.name  # fmt: skip

        filled.remove()


def test_the_raw_table_gives_back_what_was_put_in_order(tmp_path: Path) -> None:
    table = RawTable(tmp_path / "raw.sqlite3", "full")
    values = [encoded(number) for number in range(5)]

    table.put_many(values[:3])
    table.put(values[3])
    table.put(values[4])

    assert table.take() == values[0]
    assert table.take_many(3) == values[1:4]
    assert table.take_many(100) == values[4:]
    table.close()


@pytest.mark.parametrize("number", [0, 7, 99, 123_456])
def test_a_value_has_200_bytes_as_json(number: int) -> None:
    assert len(encoded(number)) == SIZE == 200
    assert JSON_CODEC.decode(encoded(number)) == job(number)


@pytest.mark.parametrize(
    ("row", "met"),
    [
        (Row("told only", 1.0, 1.0, 1.0), None),
        (Row("as fast as asked", 1.0, 0.3, 0.3, at_least=0.3), True),
        (Row("too slow", 1.0, 0.2, 0.2, at_least=0.3), False),
        (Row("as flat as asked", 1.3, 1.0, 1.3, at_most=1.3), True),
        (Row("it grows", 1.4, 1.0, 1.4, at_most=1.3), False),
        (Row("flat but long", 0.002, 0.002, 1.0, at_most=1.3, longest=0.001), False),
    ],
)
def test_a_row_says_whether_its_target_is_met(row: Row, met: bool | None) -> None:
    assert row.met is met


def test_the_command_prints_a_table_or_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    report = Report("single", "how fast", "a message", "raw", [Row("put", 2e-6, 1e-6, 0.5)], {})
    missed = Report("single", "how fast", "ours", "raw", [Row("put", 2e-6, 1e-6, 0.5, 0.8)], {})
    answers = iter([[report], [report], [missed], [missed]])
    monkeypatch.setattr(single, "run", lambda folder, **options: next(answers))
    folder = ["--folder", str(tmp_path)]

    assert main(["single", *folder]) == 0
    assert "| put | 2.0 µs    | 1.0 µs | 0.50  |" in capsys.readouterr().out

    kept = tmp_path / "kept.json"
    assert main(["single", "--json", "--check", "--save", str(kept), *folder]) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    assert shown["rows"][0]["ratio"] == 0.5
    assert shown["rows"][0]["met"] is None
    assert json.loads(kept.read_text()) == [shown]

    assert main(["single", *folder]) == 0
    assert main(["single", "--check", *folder]) == 1


def test_help_names_every_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])

    assert "|".join(NAMES) in capsys.readouterr().out


def assert_measured(reports: Iterable[Report]) -> None:
    for report in reports:
        assert report.machine["file system"]
        assert report.as_table().count("\n") == len(report.rows) + 5 + 2 * len(report.remarks)
        for row in report.rows:
            assert row.measured is not None
            assert row.measured > 0, row
            assert row.against is not None
            assert row.against > 0, row
            assert row.ratio > 0, row
