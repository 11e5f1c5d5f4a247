"""A publisher that waits in a blocking call for what to do: "connect" or "bind" and an endpoint.

Each line on standard input is a subject, how many messages, and the number of the first, which stands for "#"
in the subject. It answers when they are published.
"""

import sys

import oz

how, endpoint = sys.argv[1:]
with oz.Publisher(**{how: endpoint}) as pub:
    print(pub.endpoint if how == "bind" else "-", flush=True)
    for line in sys.stdin:
        subject, count, first = line.split()
        for number in range(int(first), int(first) + int(count)):
            pub.publish(subject.replace("#", str(number)), b"%d" % number)
        pub.flush()
        print("published", flush=True)
