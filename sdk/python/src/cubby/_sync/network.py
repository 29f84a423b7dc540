# Made from ../_async/network.py by tools/unasync.py; change that one.
"""What a sandbox may reach."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .._decode import decode, decode_list
from .._lists import items
from .._request import compact, path, query
from ..models import EgressConnection, EgressDecision, Network, NetworkMode

if TYPE_CHECKING:
    from .sandbox import Sandbox


class NetworkAccess:
    """A sandbox's network policy. What it decided is in the sandbox's history, as ``egress.allowed`` and
    ``egress.denied``.
    """

    def __init__(self, box: Sandbox) -> None:
        self._box = box

    def get(self) -> Network:
        """Return the policy as it is now."""
        return (self._box.refresh()).network

    def update(
        self,
        *,
        mode: NetworkMode | None = None,
        allow: str | Sequence[str] | None = None,
        deny: str | Sequence[str] | None = None,
        cut: bool = False,
    ) -> Network:
        """Change the policy, from the next connection on, and return it.

        Args:
            mode: ``"none"``, ``"allowlist"`` or ``"open"``, and with it the lists as they are given; None changes only
                the lists that are given.
            allow: hosts for ``"allowlist"``; an empty list is the daemon's list of package indexes.
            deny: hosts that are refused whatever allows them.
            cut: end the open connections that the policy does not allow; without it they go on.
        """
        network = compact(mode=mode, allow=items(allow), deny=items(deny))
        return (self._box._patch(compact(network=network, cut_connections=cut or None))).network

    def explain(self, target: str) -> EgressDecision:
        """Tell what a request of the sandbox would get, and which rule decides.

        The name is looked up and nothing is connected.

        Args:
            target: ``"host"``, or ``"host:port"``; the port is 443 when it is left out.
        """
        url = path("sandboxes", self._box.id, "network", "explain")
        answer = self._box._transport.call("GET", url, params=query(target=target), repeat=True)
        return decode(EgressDecision, answer)

    def connections(self) -> list[EgressConnection]:
        """Return the connections that are open now, the oldest first."""
        url = path("sandboxes", self._box.id, "network", "connections")
        answer = self._box._transport.call("GET", url, repeat=True)
        return decode_list(EgressConnection, answer, "connections")
