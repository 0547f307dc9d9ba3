"""The parts of a shop's list that a reading could not read or prove. They are reported, and never counted as clean."""

from collections.abc import Sequence
from typing import Any

import msgspec

_MOST_PLACES = 10


def maybe_skipped(missing: int) -> str:
    """Return the sentence about missing orders of which the list does not show whether the mapping skips them. Empty without one."""
    reason = "because the list does not show whether the mapping skips them"
    return f"{missing:,} of the missing orders may be no orders, {reason}" if missing else ""


class ListGaps(msgspec.Struct):
    """The gaps of one reading.

    Attributes:
        unusable: elements without a usable order ID, or that are not JSON.
        untimed: orders without a readable time of their last change, although the list should contain it.
        time_example: a time that cannot be read.
        left_out: orders that the shop has left out of pages.
        unread: elements that break each page that contains them.
        places: where some of these are.
        unusable_places: where some of the unusable ones are.
        unproven: reasons why orders may have been on no page.
        short_pages: elements of the largest page, if the shop limits pages to fewer than requested. 0 if it doesn't. No order is missing.
    """

    unusable: int = 0
    untimed: int = 0
    time_example: str = ""
    left_out: int = 0
    unread: int = 0
    places: list[str] = msgspec.field(default_factory=list)
    unproven: list[str] = msgspec.field(default_factory=list)
    short_pages: int = 0
    unusable_places: list[str] = msgspec.field(default_factory=list)

    def add_unusable(self, places: Sequence[str]) -> None:
        """Count the unusable elements of a page."""
        self.unusable += len(places)
        self.unusable_places += places[: _MOST_PLACES - len(self.unusable_places)]

    def add_unread(self, place: str) -> None:
        """Count an element that breaks its page."""
        self.unread += 1
        if len(self.places) < _MOST_PLACES:
            self.places.append(place)

    def add_short_pages(self, most: int, *, has_end: bool) -> None:
        """Note the elements of the largest page, if the shop limits pages, and whether the list has shown its end."""
        self.short_pages = most
        if most == 1 and not has_end:
            self.unproven.append("each page has one order, so an empty page may not be the end of the list")

    @property
    def sentences(self) -> list[str]:
        """The gaps in words, without those that cost no order."""
        example = f", such as {self.time_example}" if self.time_example else ""
        counted = (
            (self.unusable, f"that cannot be used{_listed(self.unusable_places, self.unusable)}"),
            (self.untimed, f"without a readable time{example}"),
            (self.left_out, "left out of pages by the shop"),
            (
                self.unread,
                f"could not be read, because each page with one of them fails{_listed(self.places, self.unread)}",
            ),
        )
        return [f"{count:,} {_elements(count)} {text}" for count, text in counted if count] + self.unproven

    @property
    def note(self) -> str:
        """A fact about the list that costs requests, but no order. Empty without one."""
        return f"the shop limits pages to {self.short_pages} orders" if self.short_pages else ""

    def as_dict(self) -> dict[str, Any]:
        """Return the gaps for JSON."""
        return {
            "unusable": self.unusable,
            "untimed": self.untimed,
            "left_out": self.left_out,
            "unread": self.unread,
            "short_pages": self.short_pages,
            "not_proven": self.sentences,
        }


def _listed(places: Sequence[str], count: int) -> str:
    return f": {'; '.join(places)}{' …' if count > len(places) else ''}" if places else ""


def _elements(count: int) -> str:
    return "element" if count == 1 else "elements"
