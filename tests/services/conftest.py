from contextlib import ExitStack

import pytest
import zmq

import oz
from oz.journal import Journal
from oz.services.recorder import Recorder
from support.waiting import DEADLINE, Thread, until


class Recording:
    """A recorder at work in a thread."""

    def __init__(self, recorder, directory):
        self.recorder = recorder
        self.directory = directory
        self.thread = Thread(recorder.run)

    @property
    def stats(self):
        return self.recorder.stats

    def recorded(self, count):
        until(lambda: self.stats.recorded >= count)
        assert self.stats.recorded == count

    def end(self):
        """Stop the recorder; return all records and gaps of the journal."""
        self.recorder.stop()
        try:
            self.thread.outcome()
        finally:
            self.recorder.close()
        return self.records()

    def records(self):
        return list(Journal(self.directory).read())


@pytest.fixture
def recording(tmp_path):
    """Start recorders; each is stopped and closed at the end."""
    with ExitStack() as stack:

        def start(patterns=">", directory=tmp_path / "recorded", *, source, filtering=None, **options):
            if filtering is not None:
                options["subscriber"] = {"filtering": filtering, **options.get("subscriber", {})}
            recorder = stack.enter_context(Recorder(directory, patterns, source=source, **options))
            stack.callback(recorder.stop)
            return Recording(recorder, directory)

        yield start


@pytest.fixture
def publisher():
    """Make publishers that drop nothing."""
    with ExitStack() as stack:

        def make(**options):
            options = {"bind": "tcp://127.0.0.1:*", "on_full": "block", **options}
            return stack.enter_context(oz.Publisher(**options))

        yield make


@pytest.fixture
def met():
    """Wait until subscriptions have arrived at a publisher."""
    return lambda pub, count=1: pub.wait_for_subscribers(count=count, timeout=DEADLINE)


@pytest.fixture
def context():
    """A shared context. Its open sockets are closed at the end."""
    ctx = zmq.Context()
    yield ctx
    ctx.destroy(0)
