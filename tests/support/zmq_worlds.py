"""The same sockets twice: libzmq's on 127.0.0.1, and those of `oz.testing` on a virtual network."""

import threading

import zmq

from oz.testing.context import Context
from oz.testing.network import Network
from support.fault_proxy import FaultProxy
from support.model_proxy import ModelProxy
from support.waiting import DEADLINE, until

POLLIN = int(zmq.POLLIN)


class _Relay(FaultProxy):
    """Listener that can refuse connections."""

    is_refusing = False

    async def _accept(self, caller):
        if self.is_refusing:
            caller.close()
        else:
            await super()._accept(caller)


class RealLink:
    """Network between a subscriber and its publisher, with faults."""

    def __init__(self, endpoint):
        self._relay = _Relay(endpoint)
        self.endpoint = self._relay.endpoint
        self.stall, self.resume = self._relay.stall, self._relay.resume
        self.half_open, self.release = self._relay.half_open, self._relay.release
        self.close = self._relay.close

    def cut(self):
        self._relay.is_refusing = True
        self._relay.cut()

    def heal(self):
        self._relay.is_refusing = False


class _RealProxy:
    def __init__(self, context, front, back, number):
        self._sockets = front, back
        control, self._commands = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
        control.bind(f"inproc://control-{number}")
        self._commands.connect(f"inproc://control-{number}")
        self._control = control
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        zmq.proxy_steerable(*self._sockets, None, self._control)

    def kill(self):
        self._commands.send(b"TERMINATE")
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive()
        for one in (*self._sockets, self._control, self._commands):
            one.close(0)


class RealWorld:
    """libzmq itself."""

    def __init__(self, seed):
        self._context = zmq.Context()
        self._links, self._proxies = [], []
        self._open = []

    def socket(self, kind, host, **options):
        made = self._context.socket(kind)
        for name, value in {"RECONNECT_IVL": 10, "LINGER": 0, **options}.items():
            made.set(getattr(zmq, name), value)
        self._open.append(made)
        return made

    def bind(self, socket, endpoint):
        """Bind once an earlier listener at the endpoint has closed."""

        def binds():
            try:
                socket.bind(endpoint)
            except zmq.ZMQError as error:
                if error.errno != zmq.EADDRINUSE:
                    raise
                return False
            return True

        until(binds)
        return socket.get(zmq.LAST_ENDPOINT).rstrip(b"\0").decode()

    def link(self, endpoint, one, other):
        self._links.append(RealLink(endpoint))
        return self._links[-1]

    def proxy(self, front, back, host):
        self._open.remove(front)
        self._open.remove(back)
        self._proxies.append(_RealProxy(self._context, front, back, len(self._proxies)))
        return self._proxies[-1].kill

    def until(self, condition):
        def looks():
            for one in self._open:
                if not one.closed:
                    one.get(zmq.EVENTS)
            return condition()

        until(looks)

    def settle(self):
        """Have all sockets take notice of what the others did: enough within a context."""
        for _ in range(5):
            for one in self._open:
                if not one.closed:
                    one.get(zmq.EVENTS)

    def close(self):
        for link in self._links:
            link.close()
        for proxy in self._proxies:
            if proxy._thread.is_alive():
                proxy.kill()
        self._context.destroy(0)


class ModelLink:
    """The same, between two hosts of a virtual network."""

    def __init__(self, network, endpoint, one, other):
        self.endpoint = endpoint
        self.cut = lambda: network.cut(one, other)
        self.stall = lambda: network.stall(one, other)
        self.half_open = lambda: network.half_open(other, one)
        self.heal = self.resume = self.release = network.heal


class ModelWorld:
    """The model."""

    def __init__(self, seed):
        self.network = Network(seed)
        self._contexts, self._open = {}, []

    def socket(self, kind, host, **options):
        context = self._contexts.get(host)
        if context is None:
            context = self._contexts[host] = Context(self.network, host)
        made = context.socket(kind)
        for name, value in {"RECONNECT_IVL": 10, "LINGER": 0, **options}.items():
            made.set(getattr(zmq, name), value)
        self._open.append(made)
        return made

    def bind(self, socket, endpoint):
        socket.bind(endpoint)
        return socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def link(self, endpoint, one, other):
        return ModelLink(self.network, endpoint, one, other)

    def proxy(self, front, back, host):
        ModelProxy(front, back)

        def kill():
            self.network.kill(host)
            del self._contexts[host]

        self._open.remove(front)
        self._open.remove(back)
        return kill

    def until(self, condition):
        ends = self.network.now + DEADLINE

        def looks():
            for one in self._open:
                if not one.closed:
                    one.get(zmq.EVENTS)
            return condition()

        assert self.network.wait(looks, ends), "never so on the virtual network"

    def settle(self):
        for _ in range(5):
            for one in self._open:
                if not one.closed:
                    one.get(zmq.EVENTS)

    def close(self):
        pass
