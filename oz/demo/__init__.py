"""The data that `oz demo` publishes: real, and shipped with the package."""
