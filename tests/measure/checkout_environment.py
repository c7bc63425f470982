"""An asv environment for tests: a checkout on the path of the running interpreter. Quick, and needs no registry."""

import os
import sys

from asv import environment, util


class Checkout(environment.Environment):
    """Builds nothing: what a commit's files say is what runs."""

    tool_name = "checkout"

    def __init__(self, conf, python, requirements, tagged_env_vars):
        self._python, self._requirements = python, requirements
        super().__init__(conf, python, requirements, tagged_env_vars)

    @classmethod
    def matches(cls, python):
        return True

    def check_presence(self):
        return os.path.isdir(self._path)

    def _setup(self):
        os.makedirs(self._path)

    def install_project(self, conf, repo, commit_hash):
        self.checkout_project(repo, commit_hash)
        if os.path.exists(os.path.join(self._build_root, "broken")):
            raise util.ProcessError(["build"], 1, "compiling\nerror: no such instruction", "")
        for command in conf.build_command or ():
            self.find_executable(command.split()[0])  # OSError, as in asv's own, which looks nowhere else
        self._set_installed_commit_hash(commit_hash)

    def run(self, args, **kwargs):
        env = dict(kwargs.pop("env", os.environ), ASV_PYTHONPATH=self._build_root, **self._global_env_vars)
        return util.check_output([sys.executable, *args], env=env, **kwargs)
