"""Demo that `oz demo` runs. It publishes real data, which the package contains."""
