"""What providers refuse of a conversation."""

Shape = list[list]  #: `["human"]`, `["ai", [ids of its calls]]` or `["tool", id of the call]` for each message


def shape(messages) -> Shape:
    """What providers look at in messages."""
    return [_shape(message) for message in messages if message.type != "system"]


def _shape(message):
    match message.type:
        case "ai":
            return ["ai", [call["id"] for call in message.tool_calls]]
        case "tool":
            return ["tool", message.tool_call_id]
    return [message.type]


def fault(seen: Shape, *, saved: bool = False) -> str | None:
    """Why a provider would refuse it, if it would. What is only `saved` may end with calls that are not answered."""
    if not seen:
        return None if saved else "nothing to read"
    if seen[0][0] != "human":
        return f"it begins with {seen[0][0]}"
    open_calls: set[str] = set()
    for kind, *facts in seen:
        if kind == "tool":
            if facts[0] not in open_calls:
                return f"the result of {facts[0]} has no open call"
            open_calls.remove(facts[0])
            continue
        if open_calls:
            return f"{sorted(open_calls)} are not answered"
        if kind == "ai":
            open_calls = set(facts[0])
    return f"{sorted(open_calls)} are not answered at the end" if open_calls and not saved else None
