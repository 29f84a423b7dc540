"""What the package websockets says, in the package's own words. It is imported when a terminal is opened."""

from __future__ import annotations

from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from .errors import InvalidRequestError, UnavailableError, UnreachableError, from_answer

_REFUSED = (1007, 1008, 1009)


class Telling:
    """Turns the errors of a connection into the package's."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ConnectionClosed):
            frame = error.rcvd
            if frame is not None and frame.code in _REFUSED:
                raise InvalidRequestError(frame.reason or f"the daemon closed the terminal: {frame.code}") from error
            raise UnavailableError("the connection to the terminal broke", retryable=True) from error
        if isinstance(error, InvalidStatus):
            answer = error.response
            raise from_answer(answer.status_code, answer.reason_phrase, answer.headers, bytes(answer.body)) from error
        if isinstance(error, (OSError, EOFError, WebSocketException)):
            text = str(error) or type(error).__name__
            raise UnreachableError(f"connecting to the terminal: {text}", retryable=True) from error
