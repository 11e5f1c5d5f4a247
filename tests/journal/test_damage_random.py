"""Journals to which random things happen between random appends, against a list of what was acknowledged.

The suite does it for some seeds; `OZ_SOAK=1 pytest tests/journal/test_damage_random.py` for 2,000.
"""

import logging
import os
import random
import shutil

import pytest

from oz.journal import Journal, Kind, Writer
from oz.journal.epochs import history_of
from support.sizes import size

SEEDS = size(3, 2_000)
ROUNDS = 6


class Model:
    """A journal and what it must hold."""

    def __init__(self, where, seed):
        self.chance = random.Random(seed)
        self.directory = where / "journal"
        self.backups = where
        self.acknowledged = []
        self.kept = {}
        self.checkpoints = []
        self.retain = self.chance.random() < 0.25
        self.grown = 0

    def append(self):
        """A writer opens it and appends; nothing that was acknowledged may be given away."""
        chance = self.chance
        options = {"segment_bytes": chance.choice([1, 5000, 20_000, 1 << 20]), "sync": "never"}
        options["seal_on_close"] = chance.random() < 0.3
        if self.retain:
            options["retain_bytes"] = 60_000
        with Writer(self.directory, **options) as writer:
            assert writer.end_offset == len(self.acknowledged)
            for _ in range(chance.randrange(6)):
                count = chance.choice([1, 1, 3, 40])
                group = [chance.randbytes(chance.choice([0, 10, 300])) for _ in range(count)]
                end = writer.append([(f"a.{chance.randrange(9)}", payload) for payload in group])
                self.acknowledged += group
                assert end == len(self.acknowledged)
        self.remember()

    def remember(self):
        """What a reader that has come to some offset would note, with what it has read."""
        journal = Journal(self.directory)
        end = journal.end_offset
        for offset in {end, self.chance.randint(0, end)}:
            epoch = history_of(self.directory).epoch_before(offset)
            self.checkpoints.append((epoch, offset, self.acknowledged[:offset]))

    def befall(self):
        """One thing befalls one file, or the whole directory."""
        chance = self.chance
        names = sorted(
            path for path in self.directory.iterdir() if path.is_file() and path.name != "writer.lock"
        )
        path = chance.choice(names)
        what = chance.choice(["flip", "flip", "flip", "cut", "delete", "more", "back up", "restore"])
        content = path.read_bytes()
        if what == "back up" and not self.retain:
            name = f"backup{len(self.kept)}"
            shutil.copytree(self.directory, self.backups / name)
            self.kept[name] = list(self.acknowledged)
        elif what == "restore" and self.kept:
            name = chance.choice(sorted(self.kept))
            shutil.rmtree(self.directory)
            shutil.copytree(self.backups / name, self.directory)
            self.acknowledged = list(self.kept[name])
        elif what == "flip" and content:
            at = chance.randrange(len(content))
            path.write_bytes(
                content[:at] + bytes([content[at] ^ 1 << chance.randrange(8)]) + content[at + 1 :]
            )
        elif what == "cut":
            os.truncate(path, chance.randrange(len(content) + 1))
        elif what == "delete":
            path.unlink()
        elif what == "more" and path.suffix == ".arrows":
            path.write_bytes(content + content[-chance.randrange(1, 3000) :])
        return what, path.name

    def check(self, first):
        """What is there was acknowledged, or is said to be lost; so it is for who has noted an offset."""
        journal = Journal(self.directory)
        assert journal.first_offset <= first or self.retain
        found = list(journal.read(gaps=True))
        assert [one.offset for one in found] == list(range(journal.first_offset, len(self.acknowledged)))
        assert all(one.kind == Kind.DAMAGED or one.payload == self.acknowledged[one.offset] for one in found)
        history = history_of(self.directory)
        for epoch, offset, had_read in self.checkpoints:
            agreed = history.agreed(epoch, offset)
            same = self.acknowledged[:offset] == had_read
            if agreed == offset <= len(self.acknowledged):
                assert same, "other records have offsets that were read, and the epoch does not tell"
            elif agreed is not None:
                assert self.acknowledged[: min(agreed, len(self.acknowledged))] == had_read[:agreed]


@pytest.mark.sized
@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_befalls_a_journal_offsets_stand_for_what_was_acknowledged(tmp_path, seed):
    logging.getLogger("oz.journal").setLevel(logging.CRITICAL)
    try:
        model = Model(tmp_path, seed)
        happened = []
        model.append()
        for _ in range(ROUNDS):
            first = Journal(model.directory).first_offset
            happened.append(model.befall())
            if model.chance.random() < 0.5:
                happened.append("append")
                model.append()
            Journal(model.directory).repair()
            model.check(first)
            model.append()
            model.check(first)
        assert Journal(model.directory).verify().ok
    except BaseException as error:
        error.add_note(f"seed {seed}: {happened}")
        raise
    finally:
        logging.getLogger("oz.journal").setLevel(logging.NOTSET)
