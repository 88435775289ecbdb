"""Deep agents whose model is the test, with skills, memory and large results in the store."""

from agents import SUBAGENTS, TOOLS, Context, Puppet, hold
from deepagents import FilesystemPermission, create_deep_agent
from deepagents.backends import CompositeBackend
from deepagents.middleware.skills import SkillsMiddleware
from langchain.agents.middleware import AgentMiddleware
from langchain.tools import ToolRuntime
from langchain_core.tools import tool

from outrider import BackgroundSubagents
from outrider.shared.backend import OutriderBackend

ROWS = 20_000


class Slow(OutriderBackend):
    """Stops, where the test says so, when a file is written and nobody knows of it yet."""

    async def awrite(self, file_path, content):
        result = await super().awrite(file_path, content)
        await hold("written")
        return result


class Gate(AgentMiddleware):
    """Stops, where the test says so, before a tool is called."""

    async def awrap_tool_call(self, request, handler):
        await hold(f"before {request.tool_call['name']}")
        return await handler(request)


@tool
async def rows() -> str:
    """Give more than a model should read."""
    await hold("rows")
    return "\n".join(f"row {number}" for number in range(ROWS))


@tool
async def ship(what: str, runtime: ToolRuntime) -> str:
    """Ship something."""
    return f"{what} shipped for {runtime.context['user']}"


@tool
async def price(what: str) -> str:
    """Tell what something costs."""
    return f"{what} costs 3"


CONNECTED = {"ada": [ship], "bob": [price]}


def of_user(runtime):
    """Say where the memory of the user lies for whom a task works."""
    return ("memories", runtime.context["user"])


def tools_of_user(name, runtime):
    """Say which tools a user's skill `shop` may use."""
    return CONNECTED.get(runtime.context["user"], []) if name == "shop" else []


_backend = CompositeBackend(
    Slow(),
    {
        "/skills/": OutriderBackend(namespace=lambda _: ("skills",)),
        "/memories/": OutriderBackend(namespace=of_user),
    },
)
keen = create_deep_agent(
    Puppet(),
    tools=[*TOOLS, rows],
    backend=_backend,
    skills=["/skills/"],
    memory=["/memories/AGENTS.md"],
    middleware=[
        SkillsMiddleware(backend=_backend, sources=["/skills/"], tools=tools_of_user),
        BackgroundSubagents({**SUBAGENTS, "keen": "another one like you"}),
        Gate(),
    ],
    context_schema=Context,
)

_ASK = FilesystemPermission(operations=["write"], paths=["/orders/**"], mode="interrupt")
asking = create_deep_agent(Puppet(), backend=OutriderBackend(), permissions=[_ASK])
