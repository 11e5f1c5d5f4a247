"""What `oz demo` publishes: real data, shipped with the package."""
