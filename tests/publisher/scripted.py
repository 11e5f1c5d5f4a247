"""Scripted subscriber: the pure link over a raw ROUTER. It runs only when the test calls it."""

import os
import time

import zmq

import oz
from oz.subscriber.link import Gap, Link, Messages, Refused, Replace
from oz.subscriber.subscriptions import Subscriptions
from oz.transport.routers import dial, dialling_router
from oz.wire import links
from oz.wire.links import DEFAULT_OPTIONS, StreamOptions
from support.waiting import DEADLINE, Thread


class Peer:
    """Subscriber with one link.

    Attributes:
        messages: subject, payload, extras of the messages that arrived, in order.
        gaps: reported by the link.
        refused: refusals of the last ANSWER.
        frames: kind of each control frame that arrived.
        is_acking: whether ACKs are sent.
    """

    def __init__(self, endpoint, *texts, equip=None, new_id=lambda: os.urandom(16), card=b"", **options):
        self.endpoint = endpoint
        self._context = zmq.Context()
        self.router = dialling_router(self._context, message_bytes=64 << 20, window=256)
        if equip is not None:
            equip(self.router)
        subscriptions, self._handle = Subscriptions(), None
        self.link = Link(os.urandom(16), subscriptions, new_id, own_card=lambda: card)
        self.messages, self.gaps, self.refused, self.frames = [], [], [], []
        self.is_acking = True
        for text in texts:
            subscriptions.add(oz.compile(text), StreamOptions(**options) if options else DEFAULT_OPTIONS)
        self.link.declare()
        self._dial()

    def _dial(self):
        if self._handle is not None:
            self.router.disconnect(self.endpoint)
        self._handle = dial(self.router, self.endpoint)
        self.link.connect(time.monotonic())
        self.send()

    @property
    def payloads(self):
        return [payload for _, payload, _ in self.messages]

    def send(self):
        while (frame := self.link.next_frame()) is not None:
            if frame[0] != links.ACK or self.is_acking:
                self._send(frame)
            self.link.confirm_sent(time.monotonic())

    def _send(self, frame):
        try:
            self.router.send_multipart([self._handle, frame], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            # A connection that the publisher has refused is gone, and a frame to it is lost.
            if error.errno != zmq.EHOSTUNREACH:
                raise

    def turn(self, seconds=0.02):
        """Read the frames that arrive within a time, and send due frames."""
        if self.router.poll(seconds * 1000):
            for _ in range(1_000):
                try:
                    handle, frame = self.router.recv_multipart(zmq.NOBLOCK)
                except zmq.Again:
                    break
                if handle == self._handle:
                    if frame and frame[0] not in (links.BATCH, links.JOINED) and not links.is_body(frame):
                        self.frames.append(frame[0])
                    self._apply(self.link.on_frame(frame, time.monotonic()))
        self._apply(self.link.tick(time.monotonic()))
        self.link.before_wait(time.monotonic())
        self.send()

    def _apply(self, effects):
        for effect in effects:
            if isinstance(effect, Messages):
                found = zip(effect.flat[::3], effect.flat[1::3], effect.flat[2::3], strict=True)
                self.messages += [(subject.decode(), payload, extras) for subject, payload, extras in found]
            elif isinstance(effect, Gap):
                self.gaps.append(effect)
            elif isinstance(effect, Refused):
                self.refused = effect.refusals
            elif isinstance(effect, Replace):
                self._dial()

    def until(self, condition, timeout=DEADLINE):
        """Turn until a condition holds."""
        ends = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < ends, (self.link.state, len(self.messages), self.gaps, self.refused)
            self.turn()
        return self

    def ready(self):
        """Turn until the publisher has answered the subscriptions."""
        return self.until(lambda: self.link.is_answered)

    def receive(self, count):
        """Turn until `count` messages have arrived in all; return their payloads."""
        self.until(lambda: len(self.messages) >= count)
        return self.payloads

    def in_background(self, condition):
        """Turn in a thread until a condition holds."""
        return Thread(lambda: self.until(condition))

    def close(self):
        self.router.close(0)
        self._context.term()
