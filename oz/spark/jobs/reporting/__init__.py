"""The parts of `report`: the figures, and the page that shows them."""
