"""A row of the table of docs/multicast.md: what a scene came to, at one subscriber."""

from dataclasses import dataclass

from multicast.playing import check

PACE = 0.001
RATE = 10_000


@dataclass
class Row:
    scene: str
    sent: int
    delivered: int
    raw: int | None
    lost_packets: int
    repairs: int
    lost: int
    malformed: int
    reconnects: int
    uncounted: int

    @classmethod
    def of(cls, what, sent, got, host, *, may_be_uncounted=False):
        check(sent, got, joins_late="late" in what, may_be_uncounted=may_be_uncounted)
        first = {one["name"]: one["first"] for one in got["publishers"]}
        packets = host.packets()
        return cls(
            what,
            sum(one["sent"] - first[one["name"]] for one in sent),
            got["delivered"],
            cls._raw(got),
            packets["lost_data"],
            packets["repairs"],
            got["lost"],
            got["malformed"],
            got["reconnects"],
            got["unknown"],
        )

    @staticmethod
    def _raw(got):
        return sum(row["delivered"] for raw in got["raw"] for row in raw.values()) if got["raw"] else None

    def __str__(self):
        cells = (self.scene, self.sent, self.delivered, self.raw, self.lost_packets, self.repairs, self.lost)
        shown = (f"{one:,}" if isinstance(one, int) else one or "" for one in cells)
        return " | ".join(["", *shown, ""]).strip()


HEADER = """| scene | sent | delivered | raw | packets lost on the way | repairs that came | reported lost |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |"""
