"""Encoders and decoders of everything that oz sends. This package uses no sockets, threads or clocks."""
