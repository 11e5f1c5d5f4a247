"""What answers about permissions take: whoever has a trusted key asks for as much as it likes."""

import oz
from oz.protocol.publisher import access as access_module
from oz.protocol.stats import SubscriberStats
from oz.security.access import Access, Rights
from oz.security.permissions import Permissions
from oz.security.publish_access import PublishAccess

KEY = "k" * 40


def test_answers_about_long_patterns_are_forgotten_in_time(monkeypatch):
    monkeypatch.setattr(access_module, "MOST_CHARACTERS", 100_000)
    access = Access(lambda: rights, "nats")
    for number in range(200):
        assert access.denial(KEY, [oz.compile(f"a.{number}." + "x" * 5_000)]) is not None
    assert sum(len(pattern.text) for _, _, pattern, _ in access.answers) <= 110_000


def test_long_subjects_are_allowed_and_not_remembered():
    access = PublishAccess(lambda: everything, SubscriberStats())
    access.key = KEY
    for number in range(10):
        assert access.allows(b"%d" % number + b"x" * 100_000)
        assert access.allows(b"%d" % number)
    assert sum(map(len, access.allowed[KEY, "publish"])) == 10


rights = Rights({KEY}, Permissions("deny"))
everything = Rights({KEY}, Permissions("allow"))
