"""Limits of Slurm on the GPUs used at once, as sacctmgr lists them: a job that asks for more can never start."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

ASSOCIATIONS = ("--noheader", "--parsable2", "list", "associations", "format=account,user,parentname,grptres")
QOS = ("--noheader", "--parsable2", "list", "qos", "format=name,grptres,maxtrespu,maxtrespa")
"""The queries to sacctmgr."""

_GPUS = re.compile(r"(?:^|,)gres/gpu=(\d{1,7})(?:,|$)")


@dataclass(frozen=True)
class GpuLimits:
    """The most GPUs at once; an entity without a limit is absent.

    Attributes:
        parents: the account above each account.
        associations: limits of an account (with no user) or of its user.
        qos: limits of each QOS by Slurm's reason for a job that it holds.
    """

    parents: Mapping[str, str] = field(default_factory=dict)
    associations: Mapping[tuple[str, str], int] = field(default_factory=dict)
    qos: Mapping[tuple[str, str], int] = field(default_factory=dict)

    @classmethod
    def of(cls, associations: str, qos: str) -> GpuLimits:
        """Return the limits that sacctmgr printed; for an account of several clusters, the loosest."""
        parents, own = dict[str, str](), dict[tuple[str, str], int]()
        for account, user, parent, tres in _fields(associations, 4):
            if not user and parent:
                parents[account] = parent
            own[account, user] = max(own.get((account, user), 0), _gpus(tres))
        of_qos = dict[tuple[str, str], int]()
        for name, group, per_user, per_account in _fields(qos, 4):
            reasons = {"QOSGrpGRES": group, "QOSMaxGRESPerUser": per_user, "MaxGRESPerAccount": per_account}
            of_qos |= {(name, reason): _gpus(tres) for reason, tres in reasons.items()}
        return cls(parents, *({key: most for key, most in each.items() if most < _UNLIMITED} for each in (own, of_qos)))

    def most(self, reason: str, account: str | None, user: str | None, qos: str | None) -> int | None:
        """Return how many GPUs the limit allows that a reason names; None where it is not known."""
        if reason != "AssocGrpGRES":
            return self.qos.get((qos or "", reason))
        chain = [(account or "", user or ""), *((each, "") for each in self._chain(account))]
        return min((self.associations[key] for key in chain if key in self.associations), default=None)

    def _chain(self, account: str | None) -> Iterator[str]:
        seen = set[str]()
        while account is not None and account not in seen:
            yield account
            seen.add(account)
            account = self.parents.get(account)

    def with_limits(self, requests: pl.DataFrame) -> pl.DataFrame:
        """Return the requests with the limit in the `reason` of those that exceed it: these can never start."""
        reasons = [
            self._reason(*row) for row in requests.select("reason", "account", "user", "qos", "gpu_count").iter_rows()
        ]
        return requests.with_columns(reason=pl.Series(reasons, dtype=pl.String))

    def _reason(
        self, reason: str | None, account: str | None, user: str | None, qos: str | None, gpus: int | None
    ) -> str | None:
        most = None if reason is None else self.most(reason, account, user, qos)
        return (
            reason
            if most is None or gpus is None or gpus <= most
            else f"{reason}, which allows {most} of its {gpus} GPUs"
        )


_UNLIMITED = 10**7


def _gpus(tres: str) -> int:
    """Return the GPUs in a list such as `cpu=64,gres/gpu=8`; a limit on one GPU type alone does not limit others."""
    found = _GPUS.search(tres)
    return _UNLIMITED if found is None else int(found[1])


def _fields(text: str, number: int) -> Sequence[Sequence[str]]:
    return [fields for line in text.splitlines() if len(fields := line.split("|")) == number]
