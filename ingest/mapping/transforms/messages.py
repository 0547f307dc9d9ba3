"""What a worker and a transform process send each other over a socket: frames of MessagePack, each after its length.

What the worker sends is read by the same release of this code. What the process sends holds what a user's function has made, and
is only data to the worker.
"""

import pickle
import struct

import msgspec

from ingest.domain.errors import TransformFailed
from ingest.domain.orders.order import Order
from ingest.mapping.transforms.functions import MOST_BYTES, Returned

HEADER = struct.Struct(">I")
LARGEST_REPLY = 2 * MOST_BYTES


class Start(msgspec.Struct, frozen=True):
    """The first frame: what the process is for.

    Attributes:
        function: the user's, `package.module:function`.
        memory: bytes that the process may use; 0: no limit.
        path: where modules are searched.
    """

    function: str
    memory: int
    path: list[str]


class Task(msgspec.Struct, frozen=True):
    """One call of the function.

    Attributes:
        order: its first argument, but for its times' offsets and the attributes.
        rest: its times and attributes, pickled: MessagePack has neither time zones nor decimals.
        body: its second argument.
    """

    order: Order
    rest: bytes
    body: bytes

    @classmethod
    def of(cls, order: Order, body: bytes) -> "Task":
        """The call for an order and its document.

        Raises:
            TransformFailed: its attributes have hundreds of levels.
        """
        try:
            rest = pickle.dumps((order.placed_at, order.updated_at, order.attributes))
        except RecursionError:
            raise TransformFailed("the attributes of the order are nested too deeply") from None
        return cls(msgspec.structs.replace(order, attributes={}) if order.attributes else order, rest, body)

    def whole_order(self) -> Order:
        """The order as it was given."""
        # Written by `of`, in the worker that has started this process.
        placed_at, updated_at, attributes = pickle.loads(self.rest)  # noqa: S301
        return msgspec.structs.replace(self.order, placed_at=placed_at, updated_at=updated_at, attributes=attributes)


class Reply(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of a call, or of the start.

    Attributes:
        returned: what the function returned.
        error: why it failed; empty if it has not.
        ends: whether the process ends now.
    """

    returned: list[Returned] = []
    error: str = ""
    ends: bool = False


encode = msgspec.msgpack.encode
decode_start = msgspec.msgpack.Decoder(Start).decode
decode_task = msgspec.msgpack.Decoder(Task).decode
decode_reply = msgspec.msgpack.Decoder(Reply).decode


def frame(message: Start | Task | Reply) -> bytes:
    """A message with its length before it."""
    payload = encode(message)
    return HEADER.pack(len(payload)) + payload
