"""All benchmarks, one after the other; run them on a machine that does nothing else."""

from __future__ import annotations

import pattern_index
import recording
import table

import nodes

if __name__ == "__main__":
    table.main([])
    pattern_index.main()
    recording.main([])
    nodes.main([])
