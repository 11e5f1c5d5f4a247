from math import inf

from oz.protocol.bridge.leg import REPORT_EVERY, LossReports


def test_a_loss_that_comes_too_soon_is_owed_without_a_count():
    reports = LossReports()
    assert reports.take(3, 10.0) == (True, 3)
    assert reports.take(4, 10.0 + REPORT_EVERY / 2) == (False, None)
    assert reports.next_deadline() == 10.0 + REPORT_EVERY
    assert reports.take(None, 10.0 + REPORT_EVERY) == (True, None)
    assert reports.next_deadline() == inf


def test_what_is_owed_is_told_with_the_next_whose_count_would_hide_it():
    reports = LossReports()
    reports.take(None, 10.0)
    reports.take(None, 10.0 + REPORT_EVERY / 2)
    assert reports.take(3, 10.0 + REPORT_EVERY) == (True, None)
    assert reports.take(3, 10.0 + 2 * REPORT_EVERY) == (True, 3)
