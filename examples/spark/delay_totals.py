"""Adds up delays by route: those that a subscriber receives, and those that the CSV files have."""

import json
import threading
from collections import Counter

import flight_data

import oz

Totals = dict[str, Counter[str]]
"""By route, such as `JFK.LAX`: flights, minutes of delay, and so on."""

QUIET_SECONDS = 2.0


class Listener:
    """Receives messages of delays in a thread, and adds them up.

    Attributes:
        received: how many came.
        totals: their sums.
    """

    def __init__(self, subscriber: oz.Subscriber) -> None:
        """Start."""
        self.received = 0
        self.totals: Totals = {}
        self._subscriber = subscriber
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def stop(self) -> None:
        """Take what is still on its way, and end."""
        self._is_ending.set()
        self._thread.join()

    def _listen(self) -> None:
        while True:
            try:
                message = self._subscriber.receive(timeout=QUIET_SECONDS)
            except oz.Timeout:
                if self._is_ending.is_set():
                    return
                continue
            self.received += 1
            route = message.subject.removeprefix("stats.delay.")
            numbers = json.loads(message.payload)
            del numbers["week"]
            self.totals.setdefault(route, Counter()).update(numbers)


def totals_of_csv(days: int) -> Totals:
    """Compute the same sums from the CSV files, with nothing but dictionaries."""
    ends = flight_data.end_of(days)
    rain = {
        (row["origin"], row["time_hour"]): float(row["precip"])
        for row in flight_data.rows("weather")
        if flight_data.hour(row) < ends
    }
    totals: Totals = {}
    for row in flight_data.rows("flights"):
        if flight_data.departure(row) < ends:
            route = totals.setdefault(f"{row['origin']}.{row['dest']}", Counter())
            route.update(_numbers(row, rain.get((row["origin"], row["time_hour"]))))
    return totals


def _numbers(row: dict[str, str], rain: float | None) -> dict[str, int]:
    departed = row["dep_delay"] != "NA"
    delay = int(row["dep_delay"]) if departed else 0
    is_wet = rain is not None and rain > 0
    return {
        "flights": 1,
        "departed": int(departed),
        "delay": delay,
        "departed_in_rain": int(departed and is_wet),
        "delay_in_rain": delay if is_wet else 0,
        "without_weather": int(rain is None),
    }


def table(totals: Totals, most: int = 12) -> str:
    """Lay out the routes with the most flights."""
    lines = ["route     flights  departed  mean delay  in rain  without weather"]
    for route, sums in sorted(totals.items(), key=lambda item: -item[1]["flights"])[:most]:
        dry = sums["delay"] / max(1, sums["departed"])
        wet = sums["delay_in_rain"] / max(1, sums["departed_in_rain"])
        lines.append(
            f"{route}  {sums['flights']:9,} {sums['departed']:9,} {dry:7.1f} min {wet:4.1f} min"
            f" {sums['without_weather']:16,}"
        )
    return "\n".join(lines)
