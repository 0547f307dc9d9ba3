"""Divides a capacity of one process among its sources, so that none of them can take it from the others.

A half of the capacity is divided equally and reserved. The other half goes to sources that need more. A source may take some of it while it
has taken less than `_GREED` times of what would still be free, so that something is always left for the next source ("Dynamic queue length
thresholds", Choudhury and Hahne, 1998). A single source that needs more takes eight ninths of this half, and two sources the same amount
each. The only source takes everything.

The shares are in memory. If the process dies, its successor begins with free ones.
"""

from collections.abc import Callable

_GREED = 8


class Shares:
    """A capacity in units, such as slots or bytes.

    Args:
        total: the capacity, of at least one unit for each source.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self._shares: list[Share] = []
        self._waiting: dict[Share, Callable[[], None]] = {}
        # Of each source, and of the other half: what no source has taken.
        self.reserve = self.common = self.free = 0

    def add(self) -> "Share":
        """Return the share of a further source. The shares of the others become smaller."""
        share = Share(self)
        self._divide([*self._shares, share])
        return share

    def remove(self, share: "Share") -> None:
        """Divide the share of a source among the others."""
        self._waiting.pop(share, None)
        self._divide([other for other in self._shares if other is not share])
        # Tasks of the source that end later release nothing here.
        share.detach()
        self.notify()

    def wait(self, share: "Share", on_more: Callable[[], None]) -> None:
        """Call `on_more` whenever the source may take more, because others have released some."""
        self._waiting[share] = on_more

    def stop_waiting(self, share: "Share") -> None:
        """Undo `wait`."""
        self._waiting.pop(share, None)

    def notify(self) -> None:
        """Tell the sources that wait about released capacity."""
        for share, on_more in list(self._waiting.items()):
            if share.room() > 0:
                on_more()

    def _divide(self, shares: list["Share"]) -> None:
        self._shares = shares
        reserved = self.total if len(shares) == 1 else self.total // 2
        self.reserve = max(1, reserved // len(shares)) if shares else 0
        self.common = self.total - self.reserve * len(shares)
        self.free = self.common - sum(max(0, share.taken - self.reserve) for share in shares)


class Share:
    """The share of one source.

    Attributes:
        taken: how much the source has taken.
    """

    __slots__ = ("_shares", "taken")

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self.taken = 0

    @property
    def total(self) -> int:
        """The capacity that all sources share."""
        return self._shares.total

    def room(self) -> int:
        """How much more the source may take now."""
        shares = self._shares
        own = shares.reserve - self.taken
        if shares.free <= 0:  # the only source has no other half
            return max(0, own)
        # The smallest number after which the source has taken `_GREED` times the free amount.
        further = -((-_GREED * shares.free - min(0, own)) // (_GREED + 1))
        return max(0, own) + max(0, further)

    def has_all_for(self, amount: int) -> bool:
        """Whether the source has taken nothing, and may take so much because no source uses the other half."""
        return not self.taken and amount > self._shares.reserve and self._shares.free == self._shares.common

    def take(self, amount: int = 1) -> None:
        """Take so much, even if it is more than `room`."""
        before, self.taken = self.taken, self.taken + amount
        reserve = self._shares.reserve
        if self.taken > reserve:
            self._shares.free -= self.taken - max(before, reserve)

    def release(self, amount: int = 1) -> None:
        """Release the taken share. Others may take it if it belonged to the other half."""
        before, self.taken = self.taken, self.taken - amount
        reserve = self._shares.reserve
        if before > reserve:
            self._shares.free += before - max(self.taken, reserve)
            self._shares.notify()

    def detach(self) -> None:
        """Use no other source's capacity from now on, because the source has ended."""
        self._shares = Shares(0)

    def wait(self, on_more: Callable[[], None]) -> None:
        """See `Shares.wait`."""
        self._shares.wait(self, on_more)

    def stop_waiting(self) -> None:
        """See `Shares.stop_waiting`."""
        self._shares.stop_waiting(self)
