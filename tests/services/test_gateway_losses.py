"""What a gateway says of losses does not depend on there being room to say it at once."""

from oz.message import Gap
from oz.services.gateway import Gateway
from oz.services.link import GAP, unpack


class Sender:
    """A process that multicasts, with room now and then."""

    def __init__(self):
        self.has_room = False
        self.told = []

    def send(self, frame):
        if self.has_room:
            self.told.append(unpack(frame)[0])
        return self.has_room


def test_an_unknown_loss_is_said_once_there_is_room():
    gateway = object.__new__(Gateway)
    gateway._echo, gateway._epoch, gateway._has_untold_gap = False, 1, False
    gateway._sender = sender = Sender()
    gateway._note_loss(Gap(b"origin", None, None))
    assert (gateway._epoch, sender.told) == (2, [])
    sender.has_room = True
    gateway._tell_gap()
    gateway._tell_gap()
    assert sender.told == [GAP]
