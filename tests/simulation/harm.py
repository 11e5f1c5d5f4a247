"""What goes wrong in a run: connections and processes, for a while."""

from __future__ import annotations

from functools import partial


class Harm:
    """The faults of one run that have begun and are not over."""

    def __init__(self, network, processes, mechanisms):
        self._network, self._processes, self._mechanisms = network, processes, mechanisms
        self._healing = {}

    def begin(self, fault):
        """Have something go wrong, for as long as it lasts."""
        self._mechanisms[f"fault: {fault.kind}"] += 1
        undo = getattr(self, f"_{fault.kind}")(*fault.who)
        if undo is not None:
            self._healing[fault] = undo
            self._network.call_at(self._network.now + fault.lasts, partial(self._end, fault))

    def _end(self, fault):
        undo = self._healing.pop(fault, None)
        if undo is not None:
            undo()

    def end_all(self):
        """End whatever goes wrong."""
        for fault in list(self._healing):
            self._end(fault)
        self._network.heal()

    def _reset(self, one, other):
        self._network.reset(one, other)

    def _cut(self, one, other):
        self._network.cut(one, other)
        return self._heal

    def _half_open(self, one, other):
        self._network.half_open(one, other)
        return self._heal

    def _stall(self, one, other):
        self._network.stall(one, other)
        return self._heal

    def _throttle(self, one, other):
        self._network.throttle(one, other, 20.0)
        return self._heal

    def _heal(self):
        """End this fault; the network ends all, so those that are to last begin anew."""
        self._network.heal()
        for fault in self._healing:
            if fault.kind in ("cut", "stall", "throttle"):
                getattr(self, f"_{fault.kind}")(*fault.who)

    def _busy(self, name):
        subscriber = self._processes[name]
        subscriber.is_busy = True

        def undo():
            subscriber.is_busy = False
            subscriber.wake()

        return undo

    def _freeze(self, name):
        process = self._processes[name]
        process.freeze()
        return process.thaw

    def _kill(self, name):
        process = self._processes[name]
        process.kill()
        return lambda: None if process.is_alive else process.start()

    def _close(self, name):
        process = self._processes[name]
        process.end()
        return partial(self._start_when_closed, process)

    def _start_when_closed(self, process):
        if process.is_alive and process.is_ending:
            process.close()
        if not process.is_alive:
            process.start()

    def _more(self, name):
        process = self._processes[name]
        if process.is_alive and not process.is_frozen:
            process.subscribe_more()

    def _less(self, name):
        process = self._processes[name]
        if process.is_alive and not process.is_frozen:
            process.unsubscribe()

    def _drain(self, name):
        process = self._processes[name]
        if process.is_alive and not process.is_frozen:
            process.drain()
