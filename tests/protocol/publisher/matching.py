"""Last values that patterns match, for the tests of `LastValueCache`."""


def matches(cache, patterns):
    """Return the subject and the payload of each last value that a pattern matches."""
    steps = cache.search(patterns, 0, [cache.count] * len(patterns))
    return [step[1:3] for step in steps if step is not None]
