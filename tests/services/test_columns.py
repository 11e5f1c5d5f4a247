"""What a recorder lays out in columns is the same whether it came in batches or message by message."""

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from oz.journal.columns import batch_of_columns, pieces
from oz.message import Arrival
from oz.protocol.subscriber.columns import MessageBatch, PlainBatch
from oz.services.columns import MOST, columns_of

SUBJECTS = st.sampled_from([b"a", b"a.b", "é".encode(), b"\xff\x00"])
BATCHES = st.lists(
    st.tuples(
        st.lists(st.tuples(SUBJECTS, st.binary(max_size=4)), min_size=1, max_size=5),
        st.sampled_from([b"x" * 16, b"y" * 16]),
        st.integers(0, 20) | st.integers(MOST - 6, MOST + 1),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=5,
)


def readable(subject):
    return subject.decode(errors="surrogateescape")


def batch_of(bodies, origin, sequence, time_ns):
    subjects, payloads = map(list, zip(*bodies, strict=True))
    routes = [SimpleNamespace(subject=readable(subject)) for subject in subjects]
    is_text = all("\udcff" not in route.subject for route in routes)
    arrival = Arrival(origin, sequence, time_ns, 0, 0)
    return MessageBatch(subjects, payloads, routes, arrival, is_text=is_text, size=0)


def stored(arrived):
    return batch_of_columns(columns_of(arrived), 0, 0).to_pylist()


@given(BATCHES)
def test_batches_are_laid_out_as_their_messages_would_be(drawn):
    batches = [batch_of(*one) for one in drawn]
    in_batches = stored(batches)
    one_by_one = [row for batch in batches for row in stored(batch.messages())]
    for row in (*in_batches, *one_by_one):
        del row["offset"]
        if row["sequence"] is None or row["sequence"] > MOST - 10:
            # A batch that counts beyond what a column holds has no numbers at all.
            del row["sequence"]
    assert [one.pop("sequence", None) for one in one_by_one] == [
        one.pop("sequence", None) for one in in_batches
    ]
    assert in_batches == one_by_one


@given(BATCHES)
def test_plain_batches_are_laid_out_as_their_messages_would_be(drawn):
    batches = []
    for bodies, _, first_ns, _ in drawn:
        batch = PlainBatch()
        batch.subjects += [readable(subject) for subject, _ in bodies]
        batch.payloads += [payload for _, payload in bodies]
        batch.times += range(first_ns % 1000, first_ns % 1000 + len(bodies))
        batches.append(batch)
    assert stored(batches) == stored([message for batch in batches for message in batch.messages()])


def test_more_than_one_arrow_batch_is_numbered_through():
    many = [batch_of([(b"a", b"")] * 3000, b"x" * 16, 3000 * number, 7) for number in range(4)]
    columns = columns_of(many)
    assert columns["sequence"] == range(12_000)
    rows = [row for piece in pieces(columns) for row in batch_of_columns(piece, 0, 0).to_pylist()]
    assert [row["sequence"] for row in rows] == list(range(12_000))


def test_a_number_that_no_column_holds_is_left_out():
    (row,) = stored([batch_of([(b"a", b"")], b"x" * 16, MOST + 1, 7)])
    assert row["sequence"] is None


def test_what_was_lost_between_batches_leaves_its_numbers_out():
    first, second = batch_of([(b"a", b"")] * 2, b"x" * 16, 0, 7), batch_of([(b"a", b"")], b"x" * 16, 9, 8)
    columns = columns_of([first, second])
    assert columns["sequence"].to_pylist() == [0, 1, 9]
    assert columns["time_ns"].to_pylist() == [7, 7, 8]


def test_positions_are_stored_as_they_came():
    one, two, older = (
        MessageBatch(
            [b"a"] * 2, [b""] * 2, (), Arrival(b"x" * 16, sequence, 7, 0, 0, positions), is_text=True, size=1
        )
        for sequence, positions in ((0, range(5, 7)), (2, [9, 2**63]), (4, None))
    )
    assert [row["position"] for row in stored([one, two, older])] == [5, 6, 9, None, None, None]
    following = MessageBatch(
        [b"a"], [b""], (), Arrival(b"x" * 16, 2, 7, 0, 0, range(7, 8)), is_text=True, size=1
    )
    assert columns_of([one, following])["position"] == range(5, 8)
