"""Multicast endpoints, under the names that the old core imports."""

from oz.multicast.endpoints import Endpoint as Endpoint
from oz.multicast.endpoints import check as check
from oz.multicast.endpoints import holders as holders
from oz.multicast.endpoints import is_multicast as is_multicast
from oz.multicast.endpoints import parse as parse
from oz.multicast.endpoints import parts as parts
