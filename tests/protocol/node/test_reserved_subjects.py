"""Reserved subjects: what is found for an inbox is found for all of its owner, as far as that is so."""

import oz
from oz.protocol.node.reserved_subjects import ReservedIndex
from oz.subjects.index.patterns import PatternIndex
from support.cases import each

OWNERS = ["_INBOX.0a1b", "_INBOX.ffff", "_INBOX", "_INBOX.0a1b.7"]
NUMBERS = ["1", "2", "17", "1.failed", "x", "123456789012345678901234567890"]
EVEN = [("_INBOX.0a1b.>", "nats"), ("_OZ.NAMING.0a1b", "nats"), (">", "nats"), ("*.*.*", "nats")]
UNEVEN = [
    ("_INBOX.0a1b.1", "nats"),
    ("_INBOX.*.2", "nats"),
    ("_INBOX.0a1b.*", "nats"),
    (r"^_I.*\.1", "regex"),
]


def agree(index, patterns):
    """Tell whether an index finds for every inbox what one finds that remembers nothing."""
    plain = PatternIndex(cache_size=0)
    for pattern in patterns:
        if any(prefix.startswith(b"_") for prefix in pattern.prefixes):
            plain.add(pattern, pattern.text)
    subjects = [f"{owner}.{number}" for number in NUMBERS for owner in OWNERS]
    return all(sorted(index.match(one)) == sorted(plain.match(one)) for one in [*subjects, *subjects])


@each("uneven", [[], *([one] for one in UNEVEN), UNEVEN])
def test_every_inbox_of_an_owner_is_found_whatever_was_found_before(uneven):
    index, standing = ReservedIndex(), []
    for text, dialect in [*EVEN, *uneven]:
        standing.append(oz.compile(text, dialect))
        index.add(standing[-1], text)
        assert agree(index, standing)
    while standing:
        gone = standing.pop()
        index.discard(gone, gone.text)
        assert agree(index, standing)


def test_bytes_and_text_of_an_inbox_find_the_same():
    index = ReservedIndex()
    index.add(oz.compile("_INBOX.0a1b.>"), "node")
    found = [tuple(index.match(one)) for one in ("_INBOX.0a1b.1", b"_INBOX.0a1b.2", "_INBOX.0a1b.3")]
    assert found == [("node",)] * 3
