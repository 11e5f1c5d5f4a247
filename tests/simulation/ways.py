"""The ways between buses: which forwarders are open, and whether they are the tree that they are to be."""

from __future__ import annotations


class Ways:
    """The ways between the buses of one run."""

    def __init__(self, topology, buses, forwarders, network, mechanisms):
        self._topology, self._buses, self._forwarders = topology, buses, forwarders
        self._network, self._mechanisms = network, mechanisms
        self.shape = None
        self._ambiguous = []
        """From when to when there was more than one way between two buses, or the ways changed."""

    def running(self):
        return [(name, one) for name, one in self._forwarders.items() if one is not None]

    def look(self):
        """Note when the ways between buses change, and for how long there are several."""
        shape = tuple(sorted((name, *sorted(one.open_buses)) for name, one in self.running()))
        if shape == self.shape:
            return
        now = self._network.now
        if self.shape is not None:
            self._mechanisms["ways between buses changed"] += 1
        if self._ambiguous and self._ambiguous[-1][1] is None:
            self._ambiguous[-1][1] = now
        self.shape = shape
        # What is on its way while they change may come by either.
        self._ambiguous.append([now, None if has_cycle(shape) else now])

    def were_ambiguous(self, begins, ends):
        """Tell whether the ways changed, or were several, at any time between two."""
        return any(one <= ends and (other is None or other >= begins) for one, other in self._ambiguous)

    def are_tree(self):
        """Tell whether exactly one way leads between any two buses."""
        ways = [one.open_buses for _, one in self.running()]
        return not has_cycle(self.shape) and len(joined(ways, self._buses)) == 1

    def reach(self, bus):
        """Give the buses that forwarders which have begun join with one."""
        begun = [
            set(self._topology[name])
            for name, one in self.running()
            if one.legs and not one.is_ending and one.forwarding.is_settled
        ]
        return next(part for part in joined(begun, self._buses) if bus in part)


def joined(groups, buses):
    """Give the buses in parts that hang together."""
    parts = [{bus} for bus in buses]
    for group in groups:
        touched = [part for part in parts if part & group]
        if touched:
            parts = [part for part in parts if part not in touched] + [set().union(*touched)]
    return parts


def has_cycle(shape):
    """Tell whether there are several ways between two buses."""
    parts = []
    for _, *open_buses in shape:
        touched = [part for part in parts if part & set(open_buses)]
        if sum(len(part & set(open_buses)) for part in touched) > len(touched):
            return True
        parts = [part for part in parts if part not in touched] + [set(open_buses).union(*touched)]
    return False
