"""The plan of multicast, under the name that the old core imports."""

from oz.multicast.plan import usable_kbps as usable_kbps
