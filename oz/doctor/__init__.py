"""The findings of `oz doctor`: abilities of this installation, gaps, and the line that closes each."""

from oz.doctor.examination import Examination, examine
from oz.doctor.finding import Finding

__all__ = ["Examination", "Finding", "examine"]
