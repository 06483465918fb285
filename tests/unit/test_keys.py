"""Every key of a queue is named once, and no two of them can meet."""

import pytest

from fastq.errors import ConfigError
from fastq.keys import QueueKeys, queue_keys, queues_key

UID = bytes(range(16))


def test_all_keys_of_a_queue_share_its_hash_tag():
    keys = QueueKeys("shop", "mail")
    plain = [keys.stream, keys.front, keys.suspects, keys.scheduled, keys.jobs, keys.dead, keys.pending, keys.consumers]
    plain += [keys.progress, keys.cancelled, keys.gate, keys.watch, keys.wake, keys.stats]
    made = [keys.unique(b"t:k"), keys.parked(b"t:k"), keys.id("k"), keys.job(UID), keys.result(UID)]
    made += [keys.held(b"w"), keys.calls(b"w"), keys.lane(b"p")]

    assert all(key.startswith(b"shop:{mail}:") for key in plain + made)
    assert len(set(plain + made)) == len(plain + made)


def test_what_comes_from_a_user_stands_last_and_as_it_is():
    keys = QueueKeys("shop", "mail")

    assert keys.unique(b"send%3Amail:a:b") == b"shop:{mail}:unique:send%3Amail:a:b"
    assert keys.id("event:77") == b"shop:{mail}:id:event:77"
    assert keys.id("é") == "shop:{mail}:id:é".encode()


def test_two_queues_never_share_a_key():
    assert QueueKeys("shop", "a").unique(b"t:b:lock") != QueueKeys("shop", "a.b").unique(b"t:lock")


def test_the_list_of_queues_belongs_to_the_namespace():
    assert queues_key("shop") == b"shop:queues"


def test_keys_are_made_once_for_each_queue():
    assert queue_keys("shop", "mail") is queue_keys("shop", "mail")


@pytest.mark.parametrize(("namespace", "queue"), [("a{b", "c"), ("a", "b}c"), ("", "c"), ("a", "")])
def test_a_bad_name_makes_no_keys(namespace, queue):
    with pytest.raises(ConfigError):
        queue_keys(namespace, queue)
