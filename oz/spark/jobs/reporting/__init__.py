"""The job `report`: what passes over the bus, as figures, as JSON and as one page for people."""
