"""Trees on the command line: submit under a parent, list its children, cancel with and without them, show files."""

import asyncio
import json

import pytest

from outrider.orchestrator.cli.main import run
from outrider.orchestrator.sync import connect
from outrider.shared.connections import connect as connect_redis
from outrider.shared.filestore import RedisStore
from outrider.shared.keys import Keys
from outrider.shared.settings import Settings
from outrider.shared.tree_files import tree_namespace


@pytest.fixture
def cli(redis_url, namespace, monkeypatch, tmp_path, capsys):
    (tmp_path / "langgraph.json").write_text('{"graphs": {"lead": "./a.py:lead", "helper": "./a.py:helper"}}')
    monkeypatch.setenv("OUTRIDER_REDIS_URL", redis_url)
    monkeypatch.setenv("OUTRIDER_NAMESPACE", namespace)
    monkeypatch.setenv("OUTRIDER_CONFIG", str(tmp_path / "langgraph.json"))

    def cli(*arguments):
        code = run(arguments)
        out = capsys.readouterr()
        return code, (json.loads(out.out) if "--json" in arguments and code == 0 else out.out + out.err)

    return cli


def submit(cli, *arguments):
    code, answer = cli("submit", *arguments, "--json")
    assert code == 0
    return answer["task_id"]


def statuses(cli, *task_ids):
    return [cli("show", task_id, "--json")[1]["status"] for task_id in task_ids]


def test_a_child_is_listed_under_its_parent_and_goes_with_it(cli):
    parent = submit(cli, "lead", "plan")
    children = [submit(cli, "helper", "do", "--parent", parent) for _ in range(2)]
    grandchild = submit(cli, "helper", "do", "--parent", children[0])
    code, page = cli("list", "--parent", parent, "--json")
    assert (code, {task["task_id"] for task in page["tasks"]}) == (0, set(children))
    assert {task["parent_id"] for task in page["tasks"]} == {parent}
    with connect() as o:
        tree = o.tree(parent).to_json()
    assert [child["task_id"] for child in tree["children"]] == children
    assert [child["task_id"] for child in tree["children"][0]["children"]] == [grandchild]
    _, shown = cli("show", parent, "--json")
    assert (shown["tree"]["tasks"], shown["tree"]["open_tasks"]) == (4, 4)
    _, text = cli("show", parent)
    assert "below\t3 tasks, 3 open (outrider list --parent " in text
    assert f"open\t{grandchild}, helper, pending/queued, helper" in text
    assert cli("cancel", parent, "--json") == (
        0,
        [{"task_id": parent, "outcome": "cancelled", "status": "cancelled", "follow_ups": 0}],
    )
    assert statuses(cli, parent, *children, grandchild) == ["cancelled"] * 4


def test_children_that_are_kept_stay(cli):
    parent = submit(cli, "lead", "plan")
    child = submit(cli, "helper", "do", "--parent", parent)
    assert cli("cancel", parent, "--keep-children")[0] == 0
    assert statuses(cli, parent, child) == ["cancelled", "pending"]


@pytest.mark.parametrize(
    ("parent", "said"),
    [
        ("../x", "parent '../x' is not valid"),
        ("no-such-task", "parent no-such-task takes no children: there is no such"),
    ],
)
def test_a_parent_that_cannot_be_is_refused_and_nothing_is_written(cli, parent, said):
    code, text = cli("submit", "helper", "do", "--parent", parent)
    assert (code, said in text) == (2, True)
    assert cli("list", "--json")[1]["tasks"] == []


def test_a_cancelled_parent_takes_no_children(cli):
    parent = submit(cli, "lead", "plan")
    cli("cancel", parent)
    code, text = cli("submit", "helper", "do", "--parent", parent)
    assert (code, "it is cancelled" in text) == (2, True)


def write_file(redis_url, namespace, root, path):
    async def write():
        async with connect_redis(Settings(redis_url=redis_url, namespace=namespace)) as redis:
            await RedisStore(redis, Keys(namespace)).aput(tree_namespace(root), path, {"content": "x"})

    asyncio.run(write())


def test_files_of_the_tree_are_shown_to_every_task_of_it(cli, redis_url, namespace):
    parent = submit(cli, "lead", "plan")
    child = submit(cli, "helper", "do", "--parent", parent)
    assert "its tree has no files" in cli("show", child, "--files")[1]
    write_file(redis_url, namespace, parent, "/notes/a.md")
    _, shown = cli("show", child, "--files", "--json")
    assert [(file["path"], file["bytes"]) for file in shown["files"]] == [("/notes/a.md", 15)]
    assert "/notes/a.md" in cli("show", parent, "--files")[1]
    code, text = cli("show", parent, "--files", "--result")
    assert (code, "leave out" in text) == (2, True)
