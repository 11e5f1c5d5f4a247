"""What this installation can do, what it lacks, and the line that adds it."""

from oz.doctor.examination import Examination, Finding, examine

__all__ = ["Examination", "Finding", "examine"]
