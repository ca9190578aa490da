"""What stands for a widget's view where there is no notebook."""

from __future__ import annotations

from typing import Any


class Front:
    """Stands for the anywidget: keeps what is sent and what listens."""

    model_id = "model-1"

    def __init__(self) -> None:
        self.sent: list[tuple[dict[str, Any], list[Any]]] = []
        self.closed = False

    def send(self, header: dict[str, Any], buffers: list[Any]) -> None:
        self.sent.append((header, buffers))

    def on_msg(self, heard: Any) -> None:
        self.heard = heard

    def close(self) -> None:
        self.closed = True

    @property
    def wholes(self) -> list[dict[str, Any]]:
        """The headers of the messages with the complete state."""
        return [header for header, _ in self.sent if header["whole"]]
