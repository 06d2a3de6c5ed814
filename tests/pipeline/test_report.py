"""The report: what it says is what the tables have, and a browser shows it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from localqueue import PersistentQueue
from localqueue.errors import InvalidArgument, StoreUnsupported
from localqueue.spark.pipeline.errors import ERRORS
from localqueue.spark.pipeline.events import EVENTS
from localqueue.spark.pipeline.gaps import GAPS
from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.minutes import MINUTES
from localqueue.spark.pipeline.pipeline import Pipeline
from localqueue.spark.pipeline.quarantine import QUARANTINE
from localqueue.spark.pipeline.report import Figures, Slo, figures_of, summary, write_report
from localqueue.spark.pipeline.report import figures as figures_module
from localqueue.spark.pipeline.report.crowds import crowd_of, united
from localqueue.spark.pipeline.report.page import CHARTED, page
from localqueue.spark.pipeline.report.scales import scale_for
from localqueue.spark.pipeline.report.series import Series
from localqueue.spark.pipeline.report.sketches import exact, joined, together
from localqueue.spark.pipeline.report.units import COUNT, DURATION, count, duration, percent, rate
from localqueue.spark.pipeline.report.window import SPANS, Window
from localqueue.testing.clock import ManualClock
from tests.pipeline.lakes import START, busy_days, error, fill, life, minute, short_run, sketch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def overall(figures: Figures) -> Series:
    assert figures.overall is not None
    return figures.overall


# --- sketches -------------------------------------------------------------------------------------
def test_sketches_of_spark_are_read_as_spark_reads_them(spark: SparkSession) -> None:
    sizes = [1, 2, 150, 3000]
    values = " UNION ALL ".join(f"SELECT {n} AS n, id * 1000 AS v FROM range({n})" for n in sizes)
    one = f"SELECT n, kll_sketch_agg_bigint(v, 200) AS k FROM ({values}) GROUP BY n"
    asked = ", ".join(f"kll_sketch_get_quantile_bigint(k, {r})" for r in (0.5, 0.95, 0.99))
    rows = spark.sql(f"SELECT n, k, array({asked}) AS q FROM ({one}) ORDER BY n").collect()

    for n, k, quantiles in rows:
        found = together([bytes(k)])
        assert found.count == n
        assert [found.quantile(r) for r in (0.5, 0.95, 0.99)] == [q / 1e6 for q in quantiles]
    # All of them together: the median of 3,153 numbers, nearly all of them below 3,000.
    whole = together(bytes(row.k) for row in rows)
    assert whole.count == sum(sizes)
    assert whole.quantile(0.5) == pytest.approx(1.42, rel=0.05)


def test_workers_are_told_apart_as_spark_does(spark: SparkSession) -> None:
    names = "SELECT n, concat('w', id) AS w FROM VALUES (1), (6), (70), (5000) AS t(n), range(5000)"
    rows = spark.sql(
        f"SELECT n, hll_sketch_agg(w, 10) AS k FROM ({names}) WHERE substr(w, 2) < n GROUP BY n"
    ).collect()
    sketches = {row.n: bytes(row.k) for row in rows}

    assert [len(crowd_of(sketches[n])) for n in (1, 6, 70)] == [1, 6, 70]
    assert len(united([crowd_of(sketches[6]), crowd_of(sketches[70])])) == 70
    # Too many to keep a number of each.
    assert crowd_of(sketches[5000]) == crowd_of(None) == frozenset()


def test_durations_answer_quantiles_and_how_many_are_longer() -> None:
    some = joined([together([sketch([1, 2, 3]), None, sketch([4])]), exact(np.array([5.0, 9.0]))])

    assert some.count == 6
    assert some.quantiles((0.0, 0.5, 1.0)) == (1.0, 3.0, 9.0)
    assert [some.longer_than(seconds) for seconds in (0, 3, 4.5, 9)] == [6, 3, 2, 0]
    assert together([None]).quantile(0.5) is None


def test_something_else_in_the_place_of_a_sketch_is_refused() -> None:
    with pytest.raises(StoreUnsupported, match="sketch"):
        together([b"something else"])


# --- figures --------------------------------------------------------------------------------------
def test_figures_are_the_sums_and_quantiles_of_the_minutes(lake: Lake) -> None:
    fill(
        lake,
        MINUTES,
        [
            minute(0, waits=[1, 2], backlog=5, enqueued=7),
            minute(90, waits=[3, 100], backlog=2, failures=1, retries=1),
            minute(90, "mails", waits=[4], died=1, acked=0, backlog=1),
        ],
    )

    found = figures_of(lake, slo=Slo(wait=10.0, target=0.9))

    jobs, mails = found.queues
    assert (jobs.name, jobs.sum("enqueued"), jobs.sum("acked"), jobs.sum("failures")) == (
        "jobs", 9, 4, 1,
    )  # fmt: skip
    assert jobs.wait.quantiles((0.5, 0.99)) == (2.0, 100.0)
    assert jobs.run.quantile(0.5) == 1.0
    assert (jobs.in_time, mails.in_time) == (0.75, 1.0)
    assert (jobs.succeeded, mails.succeeded) == (1.0, 0.0)
    assert overall(found).sum("acked") == 4
    assert overall(found).wait.quantile(0.5) == 3.0
    assert overall(found).backlog[-1] == 3
    late, lost = jobs.burns(found.slo)
    assert late[0] == 0.0
    # Half of the last minute's were late, and a tenth may be.
    assert late[-1] == pytest.approx(5.0)
    assert lost[-1] == 0.0


def test_a_limit_that_the_pipeline_knows_is_stronger_than_that_of_the_report(lake: Lake) -> None:
    judged: dict[str, Any] = {"slo_met": 8, "slo_missed": 2, "slo_limit": 0.5}
    fill(lake, MINUTES, [minute(0, waits=[1]), minute(45, waits=[1], **judged)])

    assert overall(figures_of(lake, slo=Slo(wait=10.0))).in_time == 0.8


def test_only_the_asked_time_is_looked_at(lake: Lake) -> None:
    fill(lake, MINUTES, [minute(n, waits=[1]) for n in range(0, 600, 10)])
    fill(lake, ERRORS, [error(n, "no", count=2) for n in range(10)])
    since, until = START + timedelta(hours=2), START + timedelta(hours=3)

    found = figures_of(lake, since=since, until=until)

    assert overall(found).sum("acked") == 6
    assert [each.count for each in found.errors] == [2]
    assert figures_of(lake, since=START + timedelta(days=9)).window is None


def a_backlog_of_two_hours(lake: Lake) -> None:
    """A thousand wait in jobs, seven in mails; after two hours three more come to jobs."""
    fill(
        lake,
        MINUTES,
        [
            minute(0, backlog=1000),
            minute(1, "mails", backlog=7),
            minute(1, "empty", backlog=0),
            minute(120, backlog=1003, enqueued=3),
        ],
    )
    lives = (life(n, 7200 + n, waited=9, ran=1) for n in (5, 20, 40))
    fill(lake, EVENTS, [next(events) for events in lives])


@pytest.mark.parametrize("seconds", [0, 10, 30])
def test_what_waited_before_a_short_time_is_in_its_backlog(lake: Lake, seconds: int) -> None:
    """Also of a time that begins in the middle of a minute, and of a queue without events."""
    a_backlog_of_two_hours(lake)

    found = figures_of(lake, since=START + timedelta(seconds=7200 + seconds))

    assert found.window is not None
    assert found.window.width < 60
    first = {0: 1001, 10: 1001, 30: 1002}[seconds]
    assert (overall(found).backlog[0], overall(found).backlog[-1]) == (first + 7, 1003 + 7)
    assert [(one.name, one.backlog[-1]) for one in found.queues] == [("jobs", 1003), ("mails", 7)]
    assert overall(found).sum("enqueued") == {0: 3, 10: 2, 30: 1}[seconds]


def test_a_queue_in_which_nothing_happens_is_shown_with_what_is_stuck_in_it(lake: Lake) -> None:
    a_backlog_of_two_hours(lake)

    found = figures_of(lake, since=START + timedelta(minutes=60), until=START + timedelta(days=9))

    assert [(one.name, one.backlog[0], one.backlog[-1]) for one in found.queues] == [
        ("jobs", 1000, 1003),
        ("mails", 7, 7),
    ]
    assert "mails" in page(found)


def test_a_time_without_any_event_shows_what_is_stuck(lake: Lake) -> None:
    a_backlog_of_two_hours(lake)
    since = START + timedelta(hours=5)

    found = figures_of(lake, since=since, until=since + timedelta(hours=1))

    assert [(one.name, one.backlog[-1]) for one in found.queues] == [("jobs", 1003), ("mails", 7)]
    assert "1,010" in summary(found)


def test_the_same_worker_in_two_queues_is_one(lake: Lake) -> None:
    short_run(lake)

    found = figures_of(lake)

    assert overall(found).workers.max() == 3
    assert [one.workers.max() for one in found.queues] == [3, 3]


def test_a_short_time_is_shown_by_the_second_and_says_what_its_minutes_say(
    spark: SparkSession, url: str, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All of it within a second and a minute: both queues are seen at work at the same time.
    clock = ManualClock(time.time() // 60 * 60)
    queues = [PersistentQueue[Any](name, store=url, clock=clock) for name in ("jobs", "mails")]
    for queue in queues:
        queue.put_many(range(30))
        clock.advance(0.01)
        # Whoever has no name is a worker too.
        worker = "w1" if queue.name == "jobs" else None
        for n, message in enumerate(queue.get_messages(25, leased_by=worker)):
            clock.advance(0.001)
            if n % 5 == 0:
                queue.dead_letter(message, error=ValueError(f"no {n}"))
            elif n % 5 == 1:
                queue.release(message, error=OSError("later"))
            else:
                queue.ack(message)
        queue.close()
    Pipeline(url, lake, spark=spark).run()

    fine = figures_of(lake)
    monkeypatch.setattr(figures_module, "SHORT", 0)
    coarse = figures_of(lake)

    assert fine.window is not None
    assert fine.window.width < 60 <= coarse.window.width  # type: ignore[union-attr]
    for one, other in zip(
        [overall(fine), *by_name(fine)], [overall(coarse), *by_name(coarse)], strict=True
    ):
        assert {k: v.sum() for k, v in one.counts.items()} == {
            k: v.sum() for k, v in other.counts.items()
        }
        assert one.sum("died") >= 5
        assert one.backlog[-1] == other.backlog[-1] >= 10
        assert one.wait.quantile(0.5) == pytest.approx(other.wait.quantile(0.5), abs=1e-5)
        assert one.run.count == other.run.count
        assert one.busy.sum() == pytest.approx(other.busy.sum(), abs=1e-3)
        assert one.workers.max() == other.workers.max() == (2 if one is overall(fine) else 1)
        assert one.succeeded == other.succeeded
        assert one.in_time == other.in_time == 1.0
    assert {(e.queue, e.error_type, e.count) for e in fine.errors} == {
        (queue, kind, 5) for queue in ("jobs", "mails") for kind in ("ValueError", "OSError")
    }


def by_name(figures: Figures) -> list[Series]:
    return sorted(figures.queues, key=lambda one: one.name)


def test_what_is_leased_ahead_makes_no_worker_busier_than_all_of_its_time(lake: Lake) -> None:
    crowded = minute(0, waits=[1]) | {"busy": 600.0, "workers": 1}
    idle = minute(60, waits=[1]) | {"busy": 0.0, "workers": 1}
    fill(lake, MINUTES, [crowded, idle])

    assert overall(figures_of(lake)).utilisation == 0.5


def test_queues_of_one_name_in_two_stores_are_told_apart(lake: Lake) -> None:
    fill(lake, MINUTES, [minute(0, waits=[1]), minute(0, waits=[1, 2]) | {"store": "f" * 16}])

    assert [one.name for one in figures_of(lake).queues] == ["jobs (ffffff)", "jobs (012345)"]


# --- windows, axes, units -------------------------------------------------------------------------
@pytest.mark.parametrize("length", [0, 59, 3600, 86_400, 90 * 86_400, 4000 * 86_400])
def test_a_window_covers_its_time_with_not_too_many_spans(length: int) -> None:
    window = Window.covering(1_000_000_007, 1_000_000_007 + length)

    assert window.start <= 1_000_000_007
    assert window.end > 1_000_000_007 + length
    assert 1 <= window.spans <= SPANS


def test_axes_have_room_for_all_values_and_few_round_marks() -> None:
    for top in (1, 3, 7, 19, 1234):
        ticks = scale_for(COUNT, np.array([0.0, top])).ticks
        assert ticks[0] == 0
        assert ticks[-1] >= top
        assert len(ticks) <= 6
    durations = scale_for(DURATION, np.array([0.004, 75.0]))
    assert durations.ticks == (0.001, 0.01, 0.1, 1, 10, 60, 600)
    assert list(durations.place(np.array([0.0, 0.001, 600.0]))) == [0, 0, 1]


def test_numbers_are_shown_as_people_read_them() -> None:
    assert [count(n) for n in (0, 9999, 12_345, 2_500_000)] == ["0", "9,999", "12.3k", "2.5M"]
    assert [duration(s) for s in (0, 2e-5, 0.25, 59)] == ["0 s", "20 µs", "250 ms", "59 s"]
    assert [duration(s) for s in (90, 7200, None)] == ["1.5 min", "2 h", "–"]
    assert [percent(p) for p in (0, 0.5, 0.9999, 1)] == ["0 %", "50 %", "99.99 %", "100 %"]
    assert percent(0.00001) == "<0.01 %"
    assert [rate(r) for r in (0, 12, 0.5, 0.001)] == ["0/s", "12/s", "30/min", "3.6/h"]


def test_an_slo_that_means_nothing_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="between 0 and 1"):
        Slo(target=99)
    with pytest.raises(InvalidArgument, match="above 0"):
        Slo(wait=0)


# --- the page -------------------------------------------------------------------------------------
def test_the_page_needs_nothing_beside_it(lake: Lake, tmp_path: Path) -> None:
    busy_days(lake, hours=3)

    write_report(lake, tmp_path / "report.html")

    text = (tmp_path / "report.html").read_text()
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["report.html"]
    assert re.findall(r"""(?:src|href)=["'](?!#|data:)|url\(|@import|https?://""", text) == []
    assert text.count("<svg") > 3 * 8
    for title in ("Throughput", "Waiting time", "Running time", "Failures", "Backlog",
                  "Workers", "Utilisation", "SLO burn"):  # fmt: skip
        assert text.count(f"<h3>{title}</h3>") == 3


def test_names_and_errors_are_text_and_never_markup(lake: Lake) -> None:
    evil = "</script><img src=x onerror=alert(1)>"
    fill(lake, MINUTES, [minute(0, evil, waits=[1]), minute(0, waits=[1])])
    fill(lake, ERRORS, [error(0, evil, evil)])

    text = page(figures_of(lake))

    assert "<img" not in text
    assert text.count("</script>") == 1 + 3
    assert "&lt;img src=x" in text


def test_many_queues_make_a_long_table_and_not_a_heavy_page(lake: Lake) -> None:
    rows = [minute(n, f"queue-{q}", waits=[1.0]) for q in range(300) for n in (0, 40, 90)]
    fill(lake, MINUTES, rows)

    text = page(figures_of(lake))

    assert len(text) < 6_000_000
    assert text.count('<section class="queue"') == CHARTED + 1
    assert all(f"queue-{q}<" in text for q in range(300))


def test_a_lake_without_tables_gives_a_page_that_says_how_to_fill_it(
    lake: Lake, tmp_path: Path
) -> None:
    figures = write_report(lake, tmp_path / "report.html")

    assert "localqueue pipeline run" in (tmp_path / "report.html").read_text()
    assert summary(figures) == "no events yet"
    assert not Path(lake.location.uri).exists()


def test_tables_without_rows_give_a_page_too(lake: Lake) -> None:
    lake.create(MINUTES)
    lake.create(ERRORS)

    assert "no events of that time" in page(figures_of(lake))


def test_what_is_missing_from_the_tables_is_said_first(lake: Lake) -> None:
    at = datetime(2026, 1, 30, tzinfo=UTC)
    fill(lake, MINUTES, [minute(0, waits=[1])])
    fill(lake, GAPS, [{"queue": "jobs", "after": 3, "upto": 9, "noticed_at": at}])
    fill(lake, QUARANTINE, [{"seq": n, "at": at, "reason": "no"} for n in (1, 2)])

    figures = figures_of(lake)

    assert "1 part of a journal had been trimmed" in page(figures)
    assert "2 rows of the journal did not decode" in page(figures)
    assert "gaps: 1" in summary(figures)


def test_the_old_page_stays_when_the_new_one_cannot_be_written(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="no folder"):
        write_report(lake, tmp_path / "nowhere" / "report.html")


def test_the_summary_has_a_line_for_each_queue_and_one_for_all(lake: Lake) -> None:
    fill(lake, MINUTES, [minute(0, waits=[1]), minute(0, "mails", waits=[1, 2])])
    fill(lake, ERRORS, [error(0, "no\ncustomer", count=3)])

    lines = summary(lake).splitlines()

    assert [line.split()[0] for line in lines[3:6]] == ["mails", "jobs", "all"]
    assert "ValueError: no customer" in lines[-1]


# --- in a browser ---------------------------------------------------------------------------------
NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)

LOOK = """<script>
addEventListener("load", () => {
  const shown = [...document.querySelectorAll(".plot svg")].filter((svg) => svg.checkVisibility());
  const plot = shown[0].parentElement, box = plot.getBoundingClientRect();
  plot.dispatchEvent(new PointerEvent("pointermove", {clientX: box.left + box.width / 2}));
  const found = {
    sizes: shown.map((svg) => [svg.clientWidth, svg.clientHeight]),
    curves: shown.map((svg) => svg.querySelector(".line").getTotalLength()),
    tip: plot.querySelector(".tip").innerText,
    page: [document.documentElement.scrollWidth, innerWidth],
    paper: getComputedStyle(document.body).backgroundColor,
  };
  document.documentElement.dataset.found = JSON.stringify(found);
});
</script>"""


def looked_at(page: Path, folder: Path, width: int, *more: str) -> dict[str, Any]:
    """What a browser makes of the page."""
    probe = folder / "probe.html"
    probe.write_text(page.read_text().replace("</body>", f"{LOOK}</body>"))
    done = subprocess.run(
        [
            str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
            f"--user-data-dir={folder / 'browser'}", f"--window-size={width},900", *more,
            "--dump-dom", probe.as_uri(),
        ],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert "CONSOLE" not in done.stderr, done.stderr
    found = re.search(r'data-found="([^"]*)"', done.stdout)
    assert found is not None, done.stdout[-2000:]
    answer: dict[str, Any] = json.loads(found[1].replace("&quot;", '"'))
    return answer


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_a_browser_shows_the_charts_wide_narrow_light_and_dark(lake: Lake, tmp_path: Path) -> None:
    busy_days(lake, hours=3)
    write_report(lake, tmp_path / "report.html")

    wide = looked_at(tmp_path / "report.html", tmp_path, 1300)
    phone = looked_at(tmp_path / "report.html", tmp_path, 500, "--force-dark-mode")

    for found in (wide, phone):
        assert len(found["sizes"]) == 8
        assert all(w > 200 and h > 100 for w, h in found["sizes"])
        assert all(length > 100 for length in found["curves"])
        assert found["tip"].startswith("2026-01-30 09:")
        assert "put" in found["tip"]
        # Nothing stands out to the side.
        assert found["page"][0] <= found["page"][1]
    assert wide["paper"] != phone["paper"]
