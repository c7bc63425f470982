"""`asv publish` beside the site that readers see, then swapped in: they see the old site or the new one, never half.

asv itself empties its folder first. Here it publishes into a folder beside the site; only when that is complete the two
change places in one step, and a publish that fails leaves the old site as it was.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from asv.commands.publish import Publish
from asv.config import Config
from asv.console import log
from asv.plugin_manager import plugin_manager
from asv.util import ProcessError, UserError

from hybrid_kernels import files
from hybrid_kernels.errors import BadInput, HybridKernelsError
from hybrid_kernels.history import folders
from hybrid_kernels.report.dashboard import plugin

PLUGIN = ".hybrid_kernels.report.dashboard.plugin"


def publish(
    config: str | os.PathLike[str] = "asv.conf.json",
    html_dir: Path | None = None,
    *,
    results: str | os.PathLike[str] | None = None,
    pull: bool = True,
) -> Path:
    """Publish the asv project of `config` with our pages, into `html_dir` (default: the one `config` names).

    `results`, a folder or an address that fsspec knows, stands in for the results folder that `config` names.

    Returns the folder of the site. BadInput when the configuration, the results or the folder cannot be used, or
    another publish is under way; HybridKernelsError when git fails. The site that was there before stands unchanged.
    """
    config = Path(config)
    if not config.is_file():
        raise BadInput(f"{config}: no such file; run in the folder of asv.conf.json, or name it with --config")
    target = html_dir.absolute() if html_dir is not None else None
    read = os.fspath(folders.folder(results).absolute()) if results is not None else None
    with contextlib.chdir(config.absolute().parent):
        try:
            conf = _load(config)
            conf.results_dir = read or conf.results_dir
            site = Path(os.path.realpath(target or conf.html_dir))
            _check(site)
            with _staging(site) as staging:
                conf.html_dir = os.fspath(staging / "site")
                _run(conf, pull)
                _swap(staging / "site", site)
        except UserError as error:
            raise BadInput(f"{config}: {error}") from error
        except ProcessError as error:
            raise HybridKernelsError(f"{config}: {error}") from error
        except OSError as error:
            place = error.filename or conf.html_dir
            raise BadInput(
                f"{place}: cannot be written ({error.strerror}); check the folder and its permissions"
            ) from error
    return site


def _load(config: Path) -> Config:
    try:
        return Config.load(config.name)
    except ValueError as error:  # from the JSON reader
        raise BadInput(f"{config}: is not JSON ({error}); see asv's documentation of asv.conf.json") from None


def _run(conf: Config, pull: bool) -> None:
    plugin.begin(conf)
    for name in dict.fromkeys([*conf.plugins, PLUGIN]):
        plugin_manager.import_plugin(name)
    if not logging.getLogger().handlers:  # asv logs to the root logger and adds a handler each time
        log.enable()
    try:
        Publish.run(conf, pull=pull)
    finally:
        log.flush()


def _check(site: Path) -> None:
    """Refuses a place that holds something else: what stands there is removed once the new site is in."""
    if not site.parent.is_dir():
        raise BadInput(f"--html-dir: {site} stands in no folder {site.parent}; make that folder first")
    if site.exists() and not site.is_dir():
        raise BadInput(f"--html-dir: {site} is a file; name a folder")
    if site.is_dir() and any(site.iterdir()) and not ((site / "info.json").exists() and (site / "index.html").exists()):
        raise BadInput(f"--html-dir: {site} holds files that are no published site; name an empty or a new folder")


@contextlib.contextmanager
def _staging(site: Path) -> Iterator[Path]:
    """An empty folder beside `site`, held by a lock, gone at the end. What a killed publish left there is removed."""
    folder = site.with_name(f".{site.name}.publishing")
    while True:
        folder.mkdir(exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise BadInput(
                f"{site}: another publish into it is under way; wait for it, or name another folder"
            ) from None
        if folder.exists() and os.path.samestat(os.fstat(handle), folder.stat()):
            break
        os.close(handle)  # the other publish ended, and removed it, between our two steps
    try:
        for left in folder.iterdir():
            shutil.rmtree(left)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _swap(new: Path, site: Path) -> None:
    """Puts `new` where `site` is, in one step where the system can; what was there lies at `new` afterwards."""
    files.flush(new)
    if not site.exists():
        os.rename(new, site)
        return
    os.chmod(new, site.stat().st_mode & 0o7777)
    files.exchange(new, site)
