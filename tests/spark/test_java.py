"""Java is found where it usually is, and where it is not the error says what to do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from localqueue.errors import ConfigurationError
from localqueue.spark.sessions import java


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without Java, to begin with."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(java, "PLACES", (f"{tmp_path}/jvm/*",))


def install(home: Path, version: str) -> Path:
    """A program that answers as Java does."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"""#!/bin/sh\necho 'openjdk version "{version}" 2026-01-01' >&2\n""")
    program.chmod(0o755)
    return program


def test_java_home_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "17.0.1")
    program = install(tmp_path / "home", "21")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))

    assert java.use_java() == program


def test_else_it_is_the_one_on_the_path(tmp_path: Path) -> None:
    program = install(tmp_path, "17.0.1")

    assert java.use_java() == program


@pytest.mark.parametrize("on_path", [None, "1.8.0_292"])
def test_one_that_is_installed_elsewhere_is_made_known_to_spark(
    on_path: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if on_path:
        install(tmp_path, on_path)
    install(tmp_path / "jvm" / "java-11", "11.0.2")
    program = install(tmp_path / "jvm" / "java-17", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", "")

    assert java.use_java() == program
    assert os.environ["JAVA_HOME"] == str(tmp_path / "jvm" / "java-17")


def test_without_java_the_error_says_what_to_do() -> None:
    with pytest.raises(ConfigurationError, match="no Java was found; on Debian and Ubuntu: apt"):
        java.use_java()


def test_a_java_that_is_too_old_is_named(tmp_path: Path) -> None:
    install(tmp_path, "1.8.0_292")

    with pytest.raises(
        ConfigurationError,
        match=r"needs Java 17 or newer; the java on the PATH, .*is Java 8; on Debian",
    ):
        java.use_java()


def test_a_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))

    with pytest.raises(ConfigurationError, match=r"JAVA_HOME is '.*gone', which has no java that"):
        java.use_java()
