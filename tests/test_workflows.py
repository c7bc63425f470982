"""The workflows keep the token from the code under test, and pin what they run."""

import re
from pathlib import Path

import pytest

from hybrid_kernels.report import markdown

FOLDER = Path(__file__).parents[1] / ".github" / "workflows"
MEASURE, COMMENT = (FOLDER / name for name in ("compare.yml", "compare-comment.yml"))


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yml")), ids=lambda path: path.name)
def test_actions_are_pinned_by_full_commit_with_their_version(path):
    """A tag can be moved to other code; a commit cannot."""
    used = re.findall(r"uses: (.*)", path.read_text())

    assert used
    assert [line for line in used if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []


def test_the_job_that_runs_the_code_under_test_has_no_token_to_lose():
    """Reading rights only, no secret, and git keeps no credentials behind; it is started by the pull request itself."""
    text = MEASURE.read_text()

    assert "pull_request:" in text
    assert "pull_request_target" not in text
    assert re.findall(r"^\s+\w[\w-]*: (?:read|write)$", text, re.MULTILINE) == ["  contents: read"]
    assert "persist-credentials: false" in text
    assert "secrets." not in text
    assert "github.token" not in text


def test_the_job_that_has_the_token_runs_none_of_that_code():
    """It checks nothing out and installs nothing; event data reaches the script by its environment only."""
    text = COMMENT.read_text()
    script = text.split("run: |")[1]

    assert "actions/checkout" not in text
    assert "pip" not in text
    assert "${{" not in script
    assert "workflow_run:" in text
    assert f'MARKER: "{markdown.MARKER}"' in text
