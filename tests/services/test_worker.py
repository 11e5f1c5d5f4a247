from oz.transport.backoff import FIRST, LONGEST, STEADY, Backoff


def test_it_may_be_started_at_once():
    assert Backoff().may_start(0.0)


def test_what_keeps_ending_is_started_less_and_less_often():
    backoff, now, pauses = Backoff(), 100.0, []
    for _ in range(12):
        assert backoff.may_start(now)
        backoff.started(now)
        pause = backoff.ended(now + 1)
        assert not backoff.may_start(now + 1 + pause / 2)
        now += 1 + pause
        pauses.append(pause)
    assert pauses[0] == FIRST
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST
    assert backoff.starts == 12


def test_what_worked_for_a_while_is_started_at_once_again():
    backoff = Backoff()
    for now in (0.0, 10.0, 20.0):
        backoff.started(now)
        backoff.ended(now + 1)
    backoff.started(40.0)
    assert backoff.ended(40.0 + STEADY) == FIRST
