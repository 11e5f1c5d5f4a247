import oz
from oz.protocol.publisher import last_value_cache
from oz.protocol.publisher.last_value_cache import LastValueCache
from protocol.publisher.matching import matches


def kept(*texts, patterns=(">",), dialect="nats"):
    all_of_it = LastValueCache()
    for text in texts:
        all_of_it.put(text[:-1].encode(), text[-1], 0)
    found = matches(all_of_it, [oz.compile(pattern, dialect) for pattern in patterns])
    return [subject.decode() + payload for subject, payload in found]


def test_the_newest_of_each_subject_is_kept_in_the_order_of_publishing():
    assert kept("a.b1", "c1", "a.b2", "d1") == ["c1", "a.b2", "d1"]


def test_those_that_any_pattern_matches_are_given_once():
    assert kept("a.b1", "a.c1", "b.c1", patterns=("a.*", "*.c")) == ["a.b1", "a.c1", "b.c1"]
    assert kept("a.b1", "a.c1", "b.c1", patterns=("b.*",)) == ["b.c1"]
    assert kept("a.b1", patterns=()) == []


def test_a_subject_that_a_dialect_cannot_read_is_none_of_its_own():
    all_of_it = LastValueCache()
    all_of_it.put(b"\xff", 1, 0)
    all_of_it.put(b"a", 2, 0)
    assert matches(all_of_it, [oz.compile(">", "nats")]) == [(b"a", 2)]
    assert matches(all_of_it, [oz.compile("*", "redis")]) == [(b"\xff", 1), (b"a", 2)]


def test_beyond_the_bound_those_published_longest_ago_go(monkeypatch):
    assert last_value_cache.LIMIT == 65_536
    monkeypatch.setattr(last_value_cache, "LIMIT", 20)
    all_of_it = LastValueCache()
    for number in range(100):
        all_of_it.put(b"%d" % number, number, 0)
        all_of_it.put(b"0", number, 0)
        found = matches(all_of_it, [oz.compile(">")])
        others = range(max(1, number - 18), number + 1) if number else ()
        assert [payload for _, payload in found] == [*others, number]
