"""Ask DuckDB about a journal that record_flights.py made: query_flights.py DIRECTORY."""

import sys

import duckdb

from oz.journal import Journal

QUERY = """
    select
        split_part(subject, '.', 2) as airport,
        count(*) as flights,
        count(distinct split_part(subject, '.', 4)) as carriers
    from journal group by airport order by flights desc
"""


def main(directory: str) -> None:
    found = Journal(directory)
    # Only the columns named are read, and DuckDB works on them where they are.
    journal = found.table("flight.>", columns=["offset", "time", "subject"])
    for airport, flights, carriers in duckdb.sql(QUERY).fetchall():
        print(f"{airport}  {flights:4} flights of {carriers:2} carriers")
    print(f"{journal.num_rows} of {found.end_offset} records")


if __name__ == "__main__":
    main(*sys.argv[1:])
