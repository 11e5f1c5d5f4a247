"""Publishers: state machines without I/O, and the engine that owns the sockets."""
