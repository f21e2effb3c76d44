# ruff: noqa: ARG002, N802  # the names and arguments are those that aiosmtpd calls with
"""A real SMTP server on loopback that does what a test asks of it."""

from __future__ import annotations

import asyncio
import contextlib
import email
import threading
from dataclasses import dataclass, field
from email import policy
from typing import TYPE_CHECKING, Any

from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator
    from email.message import EmailMessage

DROP, HANG = "drop", "hang"
"""In place of an answer: end the connection, or say nothing more."""


@dataclass
class Mailbox:
    """What arrived, and the answers to give: by the recipient, or to everybody's message."""

    port: int = 0
    mails: list[tuple[str, bytes]] = field(default_factory=list)
    greetings: int = 0
    to_sender: str = ""
    to_recipient: dict[str, str] = field(default_factory=dict)
    to_message: list[str] = field(default_factory=list)

    @property
    def messages(self) -> list[EmailMessage]:
        return [email.message_from_bytes(data, policy=policy.default) for _, data in self.mails]

    async def handle_EHLO(
        self, server: Any, session: Any, envelope: Any, hostname: str, responses: list[str]
    ) -> list[str]:
        session.host_name = hostname
        self.greetings += 1
        return responses

    async def handle_MAIL(self, server: Any, session: Any, envelope: Any, address: str, options: list[str]) -> str:
        if answer := await self._instead(server, self.to_sender):
            return answer
        envelope.mail_from = address
        return "250 OK"

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: list[str]) -> str:
        if answer := await self._instead(server, self.to_recipient.get(address, "")):
            return answer
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        wanted = self.to_message.pop(0) if self.to_message else ""
        if wanted in ("", DROP, HANG):  # what was taken, whether or not the sender will ever know
            self.mails += [(address, envelope.content) for address in envelope.rcpt_tos]
        return await self._instead(server, wanted) or "250 queued as 4711"

    async def _instead(self, server: Any, wanted: str) -> str:
        if wanted == DROP:
            server.transport.abort()
        if wanted == HANG:
            await asyncio.sleep(60)
        return wanted


@contextlib.contextmanager
def mail_server(
    mailbox: Mailbox, *, tls: ssl.SSLContext | None = None, starttls: ssl.SSLContext | None = None, password: str = ""
) -> Iterator[Mailbox]:
    """Serves until the test is over; with a password only who logs in as `fallow` may send."""

    def check(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:  # noqa: ARG001
        right = isinstance(data, LoginPassword) and (data.login, data.password) == (b"fallow", password.encode())
        return AuthResult(success=right, handled=False)

    def protocol() -> SMTP:
        options: dict[str, Any] = {"enable_SMTPUTF8": False, "loop": loop, "hostname": "mx.test"}
        if password:
            options |= {"authenticator": check, "auth_required": True, "auth_require_tls": tls is None}
        return SMTP(mailbox, tls_context=starttls, require_starttls=starttls is not None, **options)

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=_serve, args=(loop,), daemon=True)
    thread.start()
    server = _in(loop, lambda: loop.create_server(protocol, "127.0.0.1", 0, ssl=tls))
    mailbox.port = server.sockets[0].getsockname()[1]
    try:
        yield mailbox
    finally:
        _in(loop, lambda: _stop(loop, server))
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()


async def _stop(loop: asyncio.AbstractEventLoop, server: asyncio.Server) -> None:
    server.close()
    others = [task for task in asyncio.all_tasks(loop) if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def _in(loop: asyncio.AbstractEventLoop, make: Callable[[], Any]) -> Any:
    return asyncio.run_coroutine_threadsafe(make(), loop).result(10)
