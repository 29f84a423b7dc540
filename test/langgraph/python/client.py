"""Does with a server what clients of LangGraph's platform do, through the official SDK.

Usage: client.py URL
"""

import asyncio
import datetime
import sys

from langgraph_sdk import get_client


def human(content):
    return {"messages": [{"role": "user", "content": content}]}


async def collect(stream):
    return [event async for event in stream]


async def main(url):
    client = get_client(url=url, api_key=None)
    assistants = await client.assistants.search(graph_id="agent")
    assert assistants[0]["assistant_id"] == "fe096781-5601-53d2-b2f6-0d3403f7e9ca", assistants
    graph = await client.assistants.get_graph("agent")
    assert [n["id"] for n in graph["nodes"]] == ["__start__", "agent", "tools", "__end__"], graph
    assert await client.assistants.count() >= 1

    thread = (await client.threads.create(metadata={"who": "python"}))["thread_id"]
    modes = ["values", "updates", "messages-tuple", "custom", "debug", "tasks", "checkpoints", "events"]
    events = await collect(client.runs.stream(thread, "agent", input=human("cubby-tool"), stream_mode=modes, stream_resumable=True))
    assert events[0].event == "metadata", events[0]
    values = [e for e in events if e.event == "values"]
    assert [m["type"] for m in values[-1].data["messages"]] == ["human", "ai", "tool", "ai"], values[-1]
    assert {"updates", "messages", "debug", "tasks", "checkpoints", "events"} <= {e.event for e in events}
    run = events[0].data["run_id"]
    again = await collect(client.runs.join_stream(thread, run, last_event_id="-1"))
    assert [(e.event, e.data) for e in again] == [(e.event, e.data) for e in events]
    behind = events[5]
    rest = await collect(client.runs.join_stream(thread, run, stream_mode=modes, last_event_id=behind.id))
    assert [e.id for e in rest] == [e.id for e in events[6:]]

    state = await client.threads.get_state(thread)
    assert state["values"]["messages"][-1]["content"] == "It was not there.", state
    history = await client.threads.get_history(thread, limit=10)
    assert [s["metadata"]["step"] for s in history] == [3, 2, 1, 0, -1], history
    before = await client.threads.get_history(thread, limit=1, before=history[1]["checkpoint"])
    assert before[0] == history[2], before
    asked = history[3]["checkpoint"]
    assert await client.threads.get_state(thread, checkpoint=asked) == history[3]
    forked = await client.runs.wait(thread, "agent", input=human("cubby-again"), checkpoint_id=history[4]["checkpoint"]["checkpoint_id"])
    assert [m["content"] for m in forked["messages"]] == ["cubby-again", "Another answer."], forked
    updated = await client.threads.update_state(thread, {"messages": [{"role": "user", "content": "more"}]}, as_node="agent")
    assert (await client.threads.get_state(thread))["checkpoint"]["checkpoint_id"] == updated["checkpoint"]["checkpoint_id"]

    slow = await client.runs.create(thread, "agent", input=human("cubby-slow"))
    await client.runs.cancel(thread, slow["run_id"], wait=True)
    assert (await client.runs.get(thread, slow["run_id"]))["status"] == "interrupted"
    quick = await client.runs.create(thread, "agent", input=human("cubby-plain"))
    joined = await client.runs.join(thread, quick["run_id"])
    assert joined["messages"][-1]["content"] == "Hello there, this is plain.", joined
    assert len(await client.runs.list(thread)) == 4

    paused = (await client.threads.create())["thread_id"]
    question = await client.runs.wait(paused, "agent", input=human("cubby-tool"), interrupt_before=["stop_session"])
    assert question["__interrupt__"][0]["value"]["action_requests"][0]["name"] == "stop_session", question
    done = await client.runs.wait(paused, "agent", command={"resume": {"decisions": [{"type": "approve"}]}})
    assert done["messages"][-1]["content"] == "It was not there.", done

    for resume in ("yes", {}, [], {"decisions": []}):
        asked = (await client.threads.create())["thread_id"]
        await client.runs.wait(asked, "agent", input=human("cubby-tool"), config={"configurable": {"interrupt_on": True}})
        try:
            await client.runs.wait(asked, "agent", command={"resume": resume})
            raise AssertionError(f"{resume} was an answer")
        except Exception as e:
            assert "422" in str(e), e
        assert (await client.threads.get(asked))["status"] == "interrupted"
        said = await client.runs.wait(asked, "agent", command={"resume": {"decisions": [{"type": "reject"}]}, "goto": (), "update": ()})
        assert "did not allow" in said["messages"][-2]["content"], said

    made = await client.threads.create(metadata={"made": True}, supersteps=[
        {"updates": [{"values": human("hi"), "as_node": "__input__"}]},
        {"updates": [{"values": {"messages": [{"role": "ai", "content": "yes"}]}, "as_node": "agent"}]},
    ])
    await client.threads.update_state(made["thread_id"], [human("one"), human("two")], as_node="agent")
    found = await client.threads.search(metadata={"made": True}, select=["thread_id"], extract={"last": "values.messages[-1].content"})
    assert found == [{"thread_id": made["thread_id"], "extracted": {"last": "two"}}], found
    shown = await client.runs.list(paused, select=["run_id"])
    assert all(list(r) == ["run_id"] for r in shown), shown

    failed = await collect(client.runs.stream(paused, "agent", input=human("cubby-error")))
    assert failed[-1].event == "error" and "the model said no" in failed[-1].data["message"], failed[-1]
    try:
        await client.runs.wait(paused, "agent", input=human("cubby-error"))
        raise AssertionError("a run that failed has a result")
    except Exception as e:  # the SDK's own kind has no public name
        assert "the model said no" in str(e), e
    try:
        await client.threads.get("1f0caa98-bfa9-6bbf-bf5b-d7e4ef1b6a7c")
        raise AssertionError("a thread that is none was found")
    except Exception as e:
        assert "not found" in str(e), e

    alone = await client.runs.wait(None, "agent", input=human("cubby-plain"))
    assert alone["messages"][-1]["content"] == "Hello there, this is plain.", alone
    found = await client.threads.search(metadata={"who": "python"})
    assert [t["thread_id"] for t in found] == [thread], found
    await client.threads.delete(thread)
    assert await client.threads.search(metadata={"who": "python"}) == []

    mine = await client.assistants.create("agent", name="one", metadata={"who": "python"})
    await client.assistants.update(mine["assistant_id"], name="two")
    assert [v["name"] for v in await client.assistants.get_versions(mine["assistant_id"])] == ["two", "one"]
    assert (await client.assistants.set_latest(mine["assistant_id"], 1))["name"] == "one"
    await client.assistants.delete(mine["assistant_id"])

    # Crons. One begins by itself, within a minute.
    inbox = (await client.threads.create())["thread_id"]
    soon = await client.crons.create_for_thread(inbox, "agent", schedule="* * * * *", input=human("cubby-plain"), metadata={"who": "python"}, timezone="Europe/Berlin")
    end = datetime.datetime(2099, 1, 1, tzinfo=datetime.timezone.utc)
    alone = await client.crons.create("agent", schedule="0 0 1 1 *", input=human("cubby-plain"), end_time=end, on_run_completed="keep", enabled=False)
    assert alone["thread_id"] is None and alone["on_run_completed"] == "keep" and alone["end_time"] == "2099-01-01T00:00:00Z", alone
    assert [c["cron_id"] for c in await client.crons.search(metadata={"who": "python"})] == [soon["cron_id"]]
    assert await client.crons.count(thread_id=inbox) == 1
    changed = await client.crons.update(alone["cron_id"], enabled=True, end_time=None, input=human("cubby-again"))
    assert changed["end_time"] is None and changed["enabled"] and "cubby-again" in str(changed["payload"]), changed
    await client.crons.delete(alone["cron_id"])
    while not (began := (await client.crons.search(thread_id=inbox))[0])["last_run_id"]:
        await asyncio.sleep(1)
    assert (await client.runs.join(inbox, began["last_run_id"]))["messages"][-1]["content"] == "Hello there, this is plain."
    await client.threads.delete(inbox)
    assert await client.crons.count(thread_id=inbox) == 0

    # As deepagents keeps its files: one item each, listed page by page.
    files = ("python", "filesystem")
    for i in range(5):
        await client.store.put_item(files, f"/memories/{i}.md", {"content": [f"line {i}"], "created_at": "x", "modified_at": "x"}, ttl=5)
    pages = [(await client.store.search_items(files, limit=2, offset=n))["items"] for n in (0, 2, 4, 6)]
    assert [len(p) for p in pages] == [2, 2, 1, 0], pages
    assert {i["key"] for p in pages for i in p} == {f"/memories/{i}.md" for i in range(5)}
    one = await client.store.get_item(files, key="/memories/3.md", refresh_ttl=False)
    assert one["namespace"] == list(files) and one["value"]["content"] == ["line 3"], one
    found = await client.store.search_items(("python",), query="line 3", filter={"content": ["line 3"]})
    assert [(i["key"], i["score"]) for i in found["items"]] == [("/memories/3.md", 1)], found
    assert (await client.store.list_namespaces(prefix=["python"], max_depth=1))["namespaces"] == [["python"]]
    await client.store.delete_item(files, key="/memories/3.md")
    assert await client.store.get_item(files, key="/memories/3.md") is None
    print("python: ok")


asyncio.run(main(sys.argv[1]))
