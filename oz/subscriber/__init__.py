"""The subscriber's side of links: links, subscriptions, queues. No sockets, threads or clocks."""
