"""`oz explain --against`: counts of delivered messages, and of messages that only the prefix matches."""

import itertools
import json
import threading

import pytest

import oz as library
from oz.demo.flights import load
from support.ports import lasting_endpoint
from support.waiting import DEADLINE, Thread


@pytest.fixture
def flights(tmp_path):
    path = tmp_path / "subjects.txt"
    path.write_text("".join(f"{subject}\n" for subject, _ in load()))
    return path


def test_counts_equal_those_of_a_plain_loop_over_the_file(oz, flights):
    specs = ["flight.*.LAX.>", "rv:flight.JFK.*.*", r"regex:flight\.(JFK|LGA)\.(ORD|MDW)\..*"]
    result = oz("explain", *specs, "--against", str(flights), "--json")
    assert result.exit_code == 0, result.output
    subjects = flights.read_text().splitlines()
    for spec, row in zip(specs, json.loads(result.output), strict=True):
        pattern = library.compile(spec)
        crossed = [subject for subject in subjects if subject.encode().startswith(pattern.prefixes)]
        matched = [subject for subject in subjects if pattern.matches(subject)]
        assert (row["seen"], row["crossed"], row["matched"]) == (len(subjects), len(crossed), len(matched))
        assert row["in_vain"] == len(crossed) - len(matched)


def test_a_pipe_gets_plain_columns(oz, flights):
    result = oz("explain", "flight.JFK.>", "--against", str(flights))
    header, row = result.output.splitlines()
    assert header.split() == ["pattern", "dialect", "seen", "crossed", "matched", "in", "vain"]
    assert row.split() == ["flight.JFK.>", "nats", "27004", "9161", "9161", "0"]


def test_stdin_and_bytes_that_are_not_utf8_are_taken(oz):
    result = oz("explain", "nats:>", "redis:*", "--against", "-", "--json", stdin=b"a.b\r\n\xff\xfe\n\n")
    nats, redis = json.loads(result.output)
    assert (nats["seen"], nats["matched"], redis["matched"]) == (2, 1, 2)


def test_a_running_publisher_is_sampled(oz):
    with library.Publisher("tcp://127.0.0.1:*") as pub:
        is_over = threading.Event()

        def publish():
            pub.wait_for_subscribers(timeout=DEADLINE)
            for number in itertools.count(1):
                pub.publish("b.b" if number % 2 else "a.b")
                if is_over.wait(0.001):
                    return number

        publishing = Thread(publish)
        result = oz("explain", "a.*", "--seconds", "0.5", "--json", "--against", pub.endpoint)
        is_over.set()
        published = publishing.outcome()
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)
    assert 2 <= row["seen"] <= published
    assert row["crossed"] == row["matched"]
    assert abs(2 * row["matched"] - row["seen"]) <= 1


def test_file_without_subjects_is_an_error(oz, tmp_path):
    empty = tmp_path / "empty.txt"
    empty.write_text("\n\n")
    result = oz("explain", "a", "--against", str(empty))
    assert result.exit_code == 1
    assert "no subjects" in result.output


def test_endpoint_without_a_publisher_is_named(oz):
    endpoint = lasting_endpoint()
    result = oz("explain", "a", "--against", endpoint, "--seconds", "0.1")
    assert result.exit_code == 1
    assert f"nothing answers at {endpoint}" in result.stderr
