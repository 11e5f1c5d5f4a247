"""A gateway reports losses to its sender as soon as the link has room."""

from oz.services.link import GAP, Numbering, unpack


class Sender:
    """A process that multicasts. Its link has room if `has_room` is set."""

    def __init__(self):
        self.has_room = False
        self.told = []

    def send(self, frame):
        if self.has_room:
            self.told.append(unpack(frame)[0])
        return self.has_room


def test_an_unknown_loss_is_said_once_there_is_room():
    numbering, sender = Numbering(), Sender()
    before = numbering.epoch
    numbering.lose(None)
    numbering.send_gap(sender.send)
    assert (numbering.epoch, sender.told) == (before + 1, [])
    sender.has_room = True
    numbering.send_gap(sender.send)
    numbering.send_gap(sender.send)
    assert sender.told == [GAP]


def test_a_later_sender_gets_no_gap_of_losses_in_its_epoch():
    numbering, sender = Numbering(), Sender()
    sender.has_room = True
    assert [numbering.take(), numbering.take()] == [0, 1]
    numbering.lose(3)
    numbering.lose(None)
    resumed = numbering.resume()
    assert (resumed["next"], resumed["epoch"], numbering.reported) == (5, numbering.epoch, 5)
    numbering.send_gap(sender.send)
    assert sender.told == []
