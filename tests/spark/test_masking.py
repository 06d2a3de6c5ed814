"""A password in a URL is not shown, whichever way the URL or the password comes to be shown."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator

import pytest

from localqueue.errors import ConfigurationError, ResultStoreLockedError, StoreError
from localqueue.spark.masking import hiding, masked, without_secrets
from localqueue.spark.options import Options
from localqueue.stores.masking import secrets_of
from localqueue.stores.open import open_store

URL = "postgresql://ada:s3cr3t%21@db.example/jobs"
MEANT = "s3cr3t!"
KEY = "t0pk3y"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (URL, "postgresql://ada:***@db.example/jobs"),
        ("redis://:s3cr3t@host:6379/0", "redis://:***@host:6379/0"),
        ("postgresql://ada:s3/cr@3t@host/jobs", "postgresql://ada:***@host/jobs"),
        ("postgresql://host/jobs?password=s3cr3t&x=1", "postgresql://host/jobs?password=***&x=1"),
        ("http://host/?api_key=s3cr3t", "http://host/?api_key=***"),
        ("az://lake/a?sv=1&sig=s3cr3t&se=2", "az://lake/a?sv=1&sig=***&se=2"),
        ("s3://lake/a?X-Amz-Signature=s3cr3t", "s3://lake/a?X-Amz-Signature=***"),
        ("s3://lake?design=signal&assign=1", "s3://lake?design=signal&assign=1"),
        ("host=db user=ada password='s3 cr3t' port=1", "host=db user=ada password=*** port=1"),
        ("sqlite:////data/a:b@c.sqlite3", "sqlite:////data/a:b@c.sqlite3"),
        ("postgresql://ada@host/jobs", "postgresql://ada@host/jobs"),
    ],
)
def test_only_the_password_of_a_url_is_masked(url: str, shown: str) -> None:
    assert masked(url) == shown
    assert masked(shown) == shown


def test_a_password_is_known_as_it_is_written_and_as_it_is_meant() -> None:
    assert secrets_of(URL) == {"s3cr3t%21", MEANT}
    assert secrets_of("sqlite:////data/jobs.sqlite3") == frozenset()


def test_options_show_no_password() -> None:
    options = Options(url=URL, staging_directory="s3://key:s3cr3t@bucket", queues=("jobs",))

    shown = f"{options} {options!r} {options.masked_url}"

    assert "s3cr3t" not in shown
    assert "postgresql://ada:***@db.example/jobs" in shown


@pytest.mark.parametrize(
    "url", [URL, "host=db password=s3cr3t", "sqlite://?password=s3cr3t", f"memory://{URL}"]
)
def test_a_store_that_cannot_be_opened_shows_no_password(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_store(url)

    assert "s3cr3t" not in shown(caught.value)


class Stubborn(Exception):
    """Its text cannot be changed from outside."""

    def __str__(self) -> str:
        return f"no way to {URL}"


def chained() -> None:
    try:
        raise OSError(2, "no way", URL)
    except OSError as error:
        error.add_note(f"while asking {URL}")
        raise ValueError(f"the password {MEANT} is wrong") from error


def in_context() -> None:
    try:
        raise KeyError(URL)
    except KeyError:
        raise ResultStoreLockedError(URL)  # noqa: B904  # the context is what is tested


def stubborn_cause() -> None:
    raise StoreError("the store is down") from Stubborn()


def stubborn() -> None:
    raise Stubborn


def group() -> None:
    raise ExceptionGroup("two", [ValueError(URL), Stubborn()])


@pytest.mark.parametrize(
    ("fail", "kind"),
    [
        (chained, ValueError),
        (in_context, ResultStoreLockedError),
        (stubborn_cause, StoreError),
        (stubborn, StoreError),
        (group, ExceptionGroup),
    ],
)
def test_an_error_keeps_its_kind_and_its_causes_and_loses_the_password(
    fail: Callable[[], None], kind: type[Exception]
) -> None:
    with pytest.raises(kind) as caught, hiding(URL):
        fail()

    text = shown(caught.value)
    assert "s3cr3t" not in text
    assert fail.__name__ in text, "the traceback still leads to where it was raised"


def test_an_error_without_a_password_is_the_same_error() -> None:
    error = ValueError("the value", 7, ["list"], None)

    with pytest.raises(ValueError, match="the value") as caught, hiding(URL):
        raise error

    assert caught.value is error
    assert error.args == ("the value", 7, ["list"], None)


def test_a_short_password_is_not_cut_out_of_words() -> None:
    with pytest.raises(ValueError, match=r"^an apple for \*\*\*$"), hiding("x://u:a@host"):
        raise ValueError("an apple for a")


@without_secrets
class Reader:
    """As Spark knows one: made with options, then pickled and called elsewhere."""

    def __init__(self, options: Options, fails: bool = False) -> None:
        if fails:
            raise refusal(options)
        self.options = options

    def partitions(self) -> list[int]:
        raise refusal(self.options)

    def stage(self) -> None:
        raise OSError(f"ada may not write with the key {KEY}")

    def read(self, partition: int) -> Iterator[int]:
        yield partition
        raise refusal(self.options)


def refusal(options: Options) -> ValueError:
    """As a driver words it: with the URL, and with the bare password in both its spellings."""
    return ValueError(f"{options.url} refuses ada's {MEANT}", *sorted(secrets_of(options.url)))


def test_a_reader_shows_no_password_wherever_it_fails() -> None:
    options = Options(url=URL)
    reader = Reader(options)
    rows = reader.read(7)

    assert next(rows) == 7
    for fail in (lambda: Reader(options, fails=True), reader.partitions, lambda: next(rows)):
        with pytest.raises(ValueError, match="ada") as caught:
            fail()
        assert "s3cr3t" not in shown(caught.value)


def test_a_writer_shows_no_password_of_its_staging_directory() -> None:
    writer = Reader(Options(url=URL, staging_directory=f"s3://ada:{KEY}@bucket/folder"))

    with pytest.raises(OSError, match="ada may not write") as caught:
        writer.stage()

    assert KEY not in shown(caught.value)


def shown(error: BaseException) -> str:
    """As Spark shows it, and more."""
    return "".join(traceback.format_exception(error)) + repr(error)
