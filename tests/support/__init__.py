"""What tests share: waiting, programs, ports, buses, vectors, sizes."""
