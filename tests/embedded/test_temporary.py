"""`embedded://`: a server for one program and its children."""

import os
from pathlib import Path

import pytest
import redis

from fastq.embedded import VARIABLE, open_embedded
from fastq.errors import BrokerError
from tests.embedded.holding import Start, processes_of
from tests.support import process


def test_it_is_removed_with_its_data_at_the_end() -> None:
    server = open_embedded("embedded://")
    _, guard = processes_of(server.url)
    assert server.folder.stat().st_mode & 0o777 == 0o700

    server.close()

    process.wait_gone(guard)
    assert not server.folder.exists()


def test_a_second_one_after_the_first_is_new() -> None:
    first = open_embedded("embedded://")
    with redis.Redis.from_url(first.url) as client:
        client.set("key", "value")
    first.close()

    second = open_embedded("embedded://")

    with redis.Redis.from_url(second.url) as client:
        assert client.get("key") is None
    second.close()


def test_a_child_program_joins_it_and_keeps_it_until_its_own_end(hold: Start) -> None:
    mine = open_embedded("embedded://")
    child = hold("embedded:// join")
    server, guard = processes_of(mine.url)
    assert child.server_url == mine.url

    mine.close()
    assert child.tell("incr key") == "count 1"
    child.kill()

    process.wait_gone(server)
    process.wait_gone(guard)
    assert not mine.folder.exists()


def test_another_program_may_not_join_or_make_one_if_it_is_told_so(hold: Start) -> None:
    mine = open_embedded("embedded://")

    stranger = hold(None, env={VARIABLE: ""})

    assert "embedded:///dir" in stranger.tell("open embedded:// join")
    mine.close()


def test_another_program_that_makes_one_gets_its_own(hold: Start) -> None:
    mine = open_embedded("embedded://")

    stranger = hold("embedded://", env={VARIABLE: ""})

    assert stranger.server_url != mine.url
    mine.close()


def test_a_child_whose_parent_has_let_go_is_told_so(hold: Start) -> None:
    open_embedded("embedded://").close()

    child = hold(None)

    assert "embedded:///dir" in child.tell("open embedded:// join")


def test_no_folder_is_left_when_there_is_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("fastq.embedded._packaged_servers", list)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    with pytest.raises(BrokerError, match="pip install"):
        open_embedded("embedded://")

    assert os.listdir(tmp_path) == []
    assert not os.environ.get(VARIABLE)
