"""What tests of routers have in common: keys that come and go, and who wants what."""

import oz
from oz.protocol.publisher.lifetimes import GRACE, WITHDRAWAL_DELAY
from oz.wire.declared import declare
from oz.wire.keys import (
    Declaration,
    DeliveryOptions,
)

ORIGIN = bytes(16)
NAME = b"n" * 16
LATER = GRACE + WITHDRAWAL_DELAY + 1


def key(number, *texts, name=NAME, leaving=False, last_value=False, **delivery):
    patterns = tuple(declare(oz.compile(text)) for text in texts)
    return Declaration(name, number, DeliveryOptions(**delivery), last_value, leaving, patterns).encode()


def come(router, *keys, now=0.0):
    return [router.learn(b"\x01" + one, now) for one in keys]


def go(router, *keys, now=0.0):
    return [router.learn(b"\x00" + one, now) for one in keys]


def wanted_by(router, subject):
    recipients = router.find(subject)
    return [*recipients.streams, *(one for choice in recipients.choices for one in choice.members)]
