"""A subscriber with publishers that filter: endpoint, then patterns, or a number of patterns "p.<n>.*".

Says "ready"; then answers each line on standard input with what it has so far, as JSON; "ready" waits again.
"""

import json
import select
import sys
from contextlib import suppress

import oz

endpoint, *patterns = sys.argv[1:]
if patterns[0].isdigit():
    patterns = [f"p.{number}.*" for number in range(int(patterns[0]))]
gaps, shown, subjects, sequences = [], 0, set(), {}
sub = oz.Subscriber(
    endpoint, filtering="publisher", high_water_mark=10, on_gap=lambda gap: gaps.append(gap.count)
)
sub.subscribe(patterns)
sub.wait_ready(timeout=60)
print("ready", flush=True)
doubles = 0
while True:
    with suppress(oz.Timeout):
        while True:
            message = sub.receive(timeout=0.02)
            shown += message.gap
            subjects.add(message.subject)
            doubles += message.sequence <= sequences.get(message.origin, -1)
            sequences[message.origin] = message.sequence
    if select.select([sys.stdin], [], [], 0)[0]:
        line = sys.stdin.readline()
        if not line:
            break
        if line.strip() == "ready":
            sub.wait_ready(timeout=60)
        answer = {"delivered": sub.stats.delivered, "lost": sub.stats.lost, "gaps": gaps, "shown": shown}
        print(json.dumps({**answer, "subjects": len(subjects), "doubles": doubles}), flush=True)
