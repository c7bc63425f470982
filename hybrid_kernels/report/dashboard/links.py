"""Addresses that the pages link to: a commit in the project's repository, asv's graph of a series."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode


@dataclass(frozen=True)
class Project:
    """What asv.conf.json says of the project. `commit_url` comes before a commit's hash."""

    name: str
    url: str | None = None
    commit_url: str | None = None
    hash_length: int = 8

    @classmethod
    def of(cls, conf: Any) -> Project:
        """From asv's configuration object; an address that is not http(s), such as asv's default `#`, is none."""
        return cls(str(conf.project), web(conf.project_url), web(conf.show_commit_url), int(conf.hash_length))

    def commit(self, commit: str | None) -> dict[str, str | None] | None:
        """A commit as the pages take it: its short hash and, where the project names a place, its address."""
        if not commit:
            return None
        url = self.commit_url + quote(commit) if self.commit_url else None
        return {"short": commit[: self.hash_length], "url": url}


def web(url: Any) -> str | None:
    """`url` when it is an http(s) address, else None."""
    return url if isinstance(url, str) and re.match(r"https?://", url, re.IGNORECASE) else None


@dataclass(frozen=True)
class Graphs:
    """asv's graphs in the same folder: which benchmarks have one, with the parameter names and values asv knows.

    benchmarks: entries of asv's `benchmarks.json` by name. machines: those with results.
    """

    benchmarks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    machines: Sequence[str] = ()

    def link(
        self, benchmark: str, machine: str, params: Sequence[tuple[str, str]] = (), commit: str | None = None
    ) -> str | None:
        """The address of the graph of one series, None where asv draws none: unknown benchmark or parameter value."""
        entry = self.benchmarks.get(benchmark)
        if entry is None:
            return None
        query: list[tuple[str, str]] = [("machine", machine)] if len(self.machines) > 1 else []
        axes = dict(zip(entry.get("param_names") or (), entry.get("params") or (), strict=False))
        for name, value in params:
            known = [one for one in axes.get(name, ()) if _same(one, value)]
            if not known:
                return None
            query.append((f"p-{name}", known[0]))
        if commit:
            query.append(("commits", commit))
        return f"index.html#{quote(benchmark, safe='.')}" + (f"?{urlencode(query)}" if query else "")


def _same(written: str, value: str) -> bool:
    """Whether asv's way to write a parameter, such as `'cuda'` or `256.0`, means `value`; 256 is 256.0."""
    if written in (value, repr(value)):
        return True
    try:
        return float(written) == float(value)
    except ValueError:
        return False
