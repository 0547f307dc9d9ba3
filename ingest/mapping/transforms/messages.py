"""The frames that a worker and a transform process send each other over a socket, each after its length.

The worker is trusted: its frames are pickled, with every type of an order as it is. A reply holds results of a user's function, and
is only data to the worker: MessagePack.
"""

import pickle
import struct
from typing import Any

import msgspec

from ingest.domain.errors import TransformFailed
from ingest.domain.orders.order import Order
from ingest.mapping.transforms.functions import MOST_BYTES, Returned

HEADER = struct.Struct(">I")
LARGEST_REPLY = 2 * MOST_BYTES


class Start(msgspec.Struct, frozen=True):
    """The first frame: the purpose of the process.

    Attributes:
        function: the user's, `package.module:function`.
        memory: bytes that the process may use; 0: no limit.
        path: where modules are searched.
    """

    function: str
    memory: int
    path: list[str]


class Reply(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a call, or of the start.

    Attributes:
        returned: the orders that the function returned.
        error: why it failed; empty if it has not.
        ends: whether the process ends now.
    """

    returned: list[Returned] = []
    error: str = ""
    ends: bool = False


decode_reply = msgspec.msgpack.Decoder(Reply).decode


def framed(payload: bytes) -> bytes:
    """A payload with its length before it."""
    return HEADER.pack(len(payload)) + payload


def task_frame(order: Order, body: bytes) -> bytes:
    """The call of the function for an order and its document.

    Raises:
        TransformFailed: the attributes of the order have hundreds of levels.
    """
    try:
        return framed(pickle.dumps((order, body)))
    except RecursionError:
        raise TransformFailed("the attributes of the order are nested too deeply") from None


def reply_frame(reply: Reply) -> bytes:
    """A reply, for the worker."""
    return framed(msgspec.msgpack.encode(reply))


def unpickled(payload: bytes) -> Any:
    """The content of a frame from the worker that has started this process."""
    return pickle.loads(payload)  # noqa: S301
