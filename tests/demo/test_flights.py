"""The demo data against its own text, counted here by other means than the loader's."""

import csv
import lzma

import pytest

from oz.demo import flights


@pytest.fixture(scope="module")
def messages():
    return flights.load()


@pytest.fixture(scope="module")
def text_rows():
    text = lzma.decompress(flights.DATA.read_bytes()).decode("ascii")
    return list(csv.DictReader(text.splitlines()))


def test_subjects_alone_are_those_of_the_messages(messages):
    assert flights.subjects() == [subject for subject, _ in messages]


def test_every_value_is_that_of_its_cell_in_the_order_of_the_data_set(messages, text_rows):
    shown = [
        {name: "NA" if value is None else str(value) for name, value in payload.items()}
        for _, payload in messages
    ]
    assert shown == text_rows


def test_subjects_name_origin_destination_and_carrier(messages, text_rows):
    assert [subject.split(".") for subject, _ in messages] == [
        ["flight", row["origin"], row["dest"], row["carrier"]] for row in text_rows
    ]


def test_columns_hold_text_or_integers(messages):
    texts = {"carrier", "tailnum", "origin", "dest", "time_hour"}
    for _, payload in messages:
        assert {name for name, value in payload.items() if isinstance(value, str)} <= texts
        assert {name for name, value in payload.items() if isinstance(value, int)} & texts == set()
