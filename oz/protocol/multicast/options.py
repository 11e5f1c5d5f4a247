"""Options of multicast, under the name that the old core imports."""

from oz.options import LEAST_MTU as LEAST_MTU
from oz.options import MOST_MTU as MOST_MTU
from oz.options import MOST_RATE as MOST_RATE
from oz.options import MOST_RECOVERY as MOST_RECOVERY
from oz.options import MOST_WINDOW as MOST_WINDOW
from oz.options import REPAIR_SECONDS as REPAIR_SECONDS
from oz.options import Multicast as Multicast
