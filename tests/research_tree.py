"""The research example's lead and analysts on the worker's own runner, in this process, on a fake Redis."""

import asyncio
import html
import re
from pathlib import Path

from openai_stub import call
from outrider import Outrider
from outrider.examples import research
from outrider.examples.research import agents
from outrider.examples.research.briefs import Brief, parse_brief
from outrider.examples.research.chunk_tools import parse_found
from outrider.orchestrator.links import Links
from outrider.shared.config import Config
from outrider.shared.filestore import RedisStore
from outrider.shared.settings import Settings
from outrider.shared.store import Store
from outrider.shared.tree_files import tree_namespace
from outrider.worker.agents import Agents
from outrider.worker.control import Held
from outrider.worker.deps import Deps
from outrider.worker.grader_prompt import SYSTEM
from outrider.worker.runner import Runner

CONFIG = Path(research.__file__).with_name("langgraph.json")


class Trees:
    """Answers bells one after the other, in the order of their ringing: a lead rests before its analysts work."""

    def __init__(self, redis, namespace):
        self.settings = Settings.load(namespace=namespace, config=str(CONFIG))
        self.store = Store(redis, namespace)
        self.bells = []
        self._answered = 0
        config = Config.load(CONFIG)
        self.files = RedisStore(redis, self.store.keys)
        self._runner = Runner(
            Deps(
                settings=self.settings,
                config=config,
                store=self.store,
                files=self.files,
                agents=Agents(config.agents, config.folder),
                held=Held(),
                ring=self._ring,
                loop=asyncio.get_running_loop(),
                worker="here",
            )
        )
        self.outrider = Outrider(self.settings)
        self.outrider._session.links = Links(self.store, lambda: redis, self._ring)

    async def _ring(self, bell):
        self.bells.append(bell)

    async def ask(self, question, docs, **more):
        """Give the lead's task after it has ended, with its whole tree."""
        configurable = {"docs": str(docs), **more}
        submitted = await self.outrider.submit("lead", question, configurable=configurable)
        while self._answered < len(self.bells):
            bell = self.bells[self._answered]
            self._answered += 1
            # In a task of its own: a run sets the context variable that says who runs.
            await asyncio.create_task(self._runner.run(bell.task_id, bell.run_id))
        return await self.outrider.get(submitted.task_id)

    async def messages(self, task_id):
        return (await self.outrider.state(task_id)).get("messages", [])

    async def analysts(self, task_id):
        """Give the lead's children with their results, oldest first."""
        tree = await self.outrider.tree(task_id)
        return [await self.outrider.get(child.task.task_id) for child in tree.children]

    async def chunks(self, task_id):
        """Give what was offloaded: path → text."""
        found = await self.files.asearch(tree_namespace(task_id), limit=1000)
        return {item.key: item.value["content"] for item in found}


def calls_of(messages):
    return [(call["name"], call["args"]) for one in messages for call in getattr(one, "tool_calls", [])]


def model(question, claim):
    """Give replies for both parts, as a model might make them that searches well and embroiders its report."""

    def reply(request):
        messages = request["messages"]
        texts = [one["content"] if isinstance(one["content"], str) else "" for one in messages]
        if messages[0]["content"] == agents.PROMPT:
            if messages[-1]["role"] == "tool":
                return {"content": claim}
            return {"tool_calls": [call(1, "read_chunk", path=parse_brief(texts[1]).paths[0])]}
        if len(messages) == 2:
            return {"tool_calls": [call(1, "find_chunks", query=question)]}
        if "Started task" in texts[-1]:
            return {"content": "An analyst is at work."}
        if messages[-1]["role"] == "tool":
            brief = str(Brief(question, (parse_found(texts[-1])[0].path,)))
            return {"tool_calls": [call(2, "start_async_task", description=brief, subagent_type="analyst")]}
        claimed = html.unescape(re.search(r"<result>(.*)</result>", texts[-1])[1])
        invented = f'{claim.partition(chr(34))[0]}"Nobody wrote this."'
        return {"content": f"This is what I found:\n{claimed}\n{invented}\n- And the sky is blue.\n"}

    def graded(request):
        if request["messages"][0]["content"] != SYSTEM:
            return reply(request)
        met = {"name": "Each claim answers the question", "passed": True}
        return {"tool_calls": [call(3, "Verdict", result="satisfied", explanation="It does.", criteria=[met])]}

    return graded
