"""Publishers: state machines of links without I/O, and the engine with the sockets."""
