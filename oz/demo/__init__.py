"""Demo of `oz demo`. It publishes real data, which the package contains."""
