"""Programs that run for long: the recorder and the replayer of the journal."""
