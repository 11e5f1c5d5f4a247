"""The findings of `oz doctor`: abilities of this installation, gaps, and the line that closes each."""

from oz.doctor.examination import Check, Examination, examine

__all__ = ["Check", "Examination", "examine"]
