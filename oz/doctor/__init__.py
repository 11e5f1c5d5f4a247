"""What this installation can do, what it lacks, and the line that adds it."""

from oz.doctor.examination import Examination, examine
from oz.doctor.finding import Finding

__all__ = ["Examination", "Finding", "examine"]
