"""All benchmarks, one after the other; run them on a machine that does nothing else."""

from __future__ import annotations

import beside_pyzmq
import nodes
import pattern_index
import recording

import compiled
import routing

if __name__ == "__main__":
    beside_pyzmq.main()
    routing.main([])
    compiled.main([])
    pattern_index.main()
    recording.main([])
    nodes.main([])
