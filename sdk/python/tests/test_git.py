"""Git in a real sandbox, with a remote inside it."""

from __future__ import annotations

import pytest

from cubby import GitError, NotFoundError, Output, Sandbox


def test_a_repository_from_clone_to_push(box: Sandbox) -> None:
    box.exec("git init -q --bare -b main /workspace/remote.git", check=True)
    cloned = box.git.clone("/workspace/remote.git", "work")
    assert (cloned.path, cloned.commit) == ("/workspace/work", "")
    with pytest.raises(GitError) as caught:
        box.git.clone("/workspace/remote.git", "work")
    assert caught.value.code == "dest_exists"

    box.files.write("work/it's; $(touch oops).txt", "one\ntwo\n")
    status = box.git.status("work")
    assert not status.clean
    assert [(f.path, f.worktree) for f in status.files] == [("it's; $(touch oops).txt", "untracked")]
    assert box.git.add(all=True, path="work").files[0].index == "added"
    message = 'it\'s "quoted" $(touch oops)\n\nand has a body'
    made = box.git.commit(message, path="work", author_name="An Author", author_email="a@example.com")
    assert (made.subject, made.body.strip(), made.author.name) == (
        'it\'s "quoted" $(touch oops)',
        "and has a body",
        "An Author",
    )
    assert made.changes.additions == 2
    with pytest.raises(GitError) as caught:
        box.git.commit("again", path="work")
    assert caught.value.code == "nothing_to_commit"
    assert not [f for f in box.files.list("work") if f.name == "oops"]

    branch = made.branch
    assert [r.status for r in box.git.push("work").refs] == ["new"]
    assert box.git.checkout("topic", create=True, path="work").branch == "topic"
    assert {b.name for b in box.git.branch(path="work").branches if not b.remote} == {branch, "topic"}
    assert "other" in {b.name for b in box.git.branch("other", path="work").branches}
    box.git.checkout(branch, path="work")

    box.git.clone("/workspace/remote.git", "second", branch=branch)
    box.files.write("second/new", "line\n")
    pushed = box.git.commit("second", files=["new"], path="second")
    box.git.push("second")
    pulled = box.git.pull("work")
    assert (pulled.updated, pulled.before, pulled.commit) == (True, made.commit, pushed.commit)
    assert [c.subject for c in box.git.log("work")] == ["second", made.subject]
    assert [c.subject for c in box.git.log("work", limit=1)] == ["second"]

    box.files.write("work/new", "line\nmore\n")
    diff = box.git.diff("work")
    assert [(f.path, f.additions) for f in diff.files] == [("new", 1)]
    assert "+more" in diff.patch
    assert box.git.diff("work", staged=True).files == []


def test_progress_of_an_operation(box: Sandbox) -> None:
    box.exec("git init -q --bare -b main /workspace/empty.git", check=True)
    process = box.git.start("clone", url="/workspace/empty.git", dest="progress")
    printed = b"".join(c.data for c in process.stream() if isinstance(c, Output))
    assert b"progress" in printed
    result = process.wait(60)
    assert result.kind == "git.clone"
    assert result.result["path"] == "/workspace/progress"


def test_operations_that_do_not_exist(box: Sandbox) -> None:
    with pytest.raises(NotFoundError):
        box.git.start("blame")
    with pytest.raises(GitError) as caught:
        box.git.status("/tmp")
    assert caught.value.code == "not_a_repository"
