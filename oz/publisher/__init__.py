"""Publishers: pure machines of links, and the engine that puts them on sockets."""
