"""The machine finds each rule of the store's scripts that is broken on purpose."""

import pytest
from redis.exceptions import ResponseError

import machine_slots
from machine import on_server, walk
from outrider.shared import scripts
from outrider.shared.errors import OutriderError

#: What a walk ends in that finds something wrong.
FOUND = (AssertionError, AttributeError, OutriderError, ResponseError, pytest.fail.Exception)

BROKEN = {
    "a claim takes a run that is not pending": (
        "claim",
        "if run[1] ~= 'pending' then return {'dropped', run[1]} end",
        "",
    ),
    "a claim does not look for a cut": ("claim", "if is_cut(TASK, 19) then return {'cut'} end", ""),
    "a claim keeps the token of the one before": (
        "claim",
        "redis.call('HSET', TASK, 'token', token, ",
        "redis.call('HSET', TASK, ",
    ),
    "a claim leaves its bell to be rung again": (
        "claim",
        "redis.call('ZREM', RING_AT, member(task_id, run_id))\nredis.call('ZADD', LEASES",
        "redis.call('ZADD', LEASES",
    ),
    "every attempt gets a range of its own": ("claim", "if not run[3] and not grades then", "if not grades then"),
    "a first claim gives from where another gave": ("claim", "'cursor', 'seq'", "'given', 'seq'"),
    "a settle is not fenced": ("settle", "if not holds(TASK, run_id, epoch, token) then return {'refused'} end", ""),
    "a settle does not look for a cut": ("settle", "if is_cut(TASK, 34) then return {'cut'} end", ""),
    "a settle that is repeated is done again": (
        "settle",
        "if run[1] == run_status and run[1] ~= 'running' and run[2] == epoch and run[3] == token then",
        "if false then",
    ),
    "a task is done while it has news": (
        "settle",
        "(redis.call('SCARD', OPEN) > 0 or has_news(TASK))",
        "redis.call('SCARD', OPEN) > 0",
    ),
    "a task is done while a child is open": (
        "settle",
        "(redis.call('SCARD', OPEN) > 0 or has_news(TASK))",
        "has_news(TASK)",
    ),
    "news that came while it worked wake nobody": (
        "settle",
        "if has_news(TASK) and at_rest(TASK) then",
        "if false then",
    ),
    "a settle keeps its slot": ("settle", "{LEASES, RING_AT, SLOTS}", "{LEASES, RING_AT}"),
    "a settle keeps its lease": (
        "settle",
        "{LEASES, RING_AT, SLOTS}",
        "{RING_AT, SLOTS}",
    ),
    "a task that waits counts as ended": ("settle", "if it == 'ends' then\n", "if is_told then\n"),
    "nobody hears of a question": (
        "settle",
        "local is_told = it == 'ends' or it == 'asks'",
        "local is_told = it == 'ends'",
    ),
    "a question never expires": (
        "settle",
        "if within then redis.call('ZADD', ANSWER_UNTIL",
        "if false then redis.call('ZADD', ANSWER_UNTIL",
    ),
    "an answered question is asked on": ("answer", "'asks', table.concat(left, ' '), ", ""),
    "a question is answered twice": ("answer", "if #left == #open then return {'not_asked', open} end", ""),
    "the first of several answers starts the run": ("answer", "if #left > 0 then\n", "if false then\n"),
    "a bare answer goes to the first of several questions": (
        "answer",
        "if #open ~= 1 then return {'several', open} end",
        "",
    ),
    "news rides on an answer": (
        "answer",
        "redis.call('HSET', NEXT_RUN, 'inbox_from', int(cursor + 1), 'inbox_to', int(cursor))",
        "",
    ),
    "an answer that is repeated is another one": (
        "answer",
        "if answered then return {'answered', answered, ids(task[4]), bell(TASK, NEXT_RUN)} end",
        "",
    ),
    "an answered question expires": (
        "expire",
        "if not MOVES.expire[task[1] .. '/' .. task[2] .. '>timeout/'] or",
        "if",
    ),
    "a later question expires with an earlier one": (
        "expire",
        " or redis.call('LINDEX', RUNS, -1) ~= run_id then",
        " then",
    ),
    "a question expires early": ("expire", "or tonumber(until_ms) > NOW then", "then"),
    "an expiry is dealt with again and again": (
        "expire",
        "redis.call('ZREM', ANSWER_UNTIL, member(task_id, run_id))",
        "",
    ),
    "a task whose question expired stays open": (
        "expire",
        "run_id, event_data)\nleave_parent(task_id)\n",
        "run_id, event_data)\n",
    ),
    "who gives up does not look at the lease": (
        "settle",
        "if only_expired == '1' and tonumber(run[4]) > NOW then return {'refused'} end",
        "",
    ),
    "a child that ended stays open": ("settle", "redis.call('SREM', PARENT_OPEN, task_id)", ""),
    "a child that was woken is not open again": (
        "settle",
        "if facts[3] ~= '' and facts[4] ~= '0' then redis.call('SADD', siblings, facts[1]) end",
        "",
    ),
    "a child tells though nobody wants to hear": (
        "settle",
        "redis.call('HGET', TASK, 'notify_parent') == '0'",
        "false",
    ),
    "a failed parent is not woken": ("settle", "and MOVES.wake[", "and now[1] ~= 'error' and MOVES.wake["),
    "a parent that timed out is woken": ("settle", "and MOVES.wake[", "and now[1] == 'timeout' or MOVES.wake["),
    "a wake has no bell to be rung again": (
        "settle",
        "redis.call('ZADD', RING_AT, NOW + tonumber(ring_again_ms), member(task_id, run_id))",
        "",
    ),
    "a lost run gets its lease back": ("release", "if how == 'lost' and tonumber(run[2]) > NOW then", "if false then"),
    "a run that is given back is still held": (
        "release",
        "redis.call('HINCRBY', TASK, 'epoch', 1)\nredis.call('HSET', TASK, 'token', '')",
        "",
    ),
    "a run that is given back has no bell": (
        "release",
        "redis.call('ZADD', RING_AT, bell_at, member(task_id, run_id))",
        "",
    ),
    "attempts are not counted": ("release", "redis.call('HINCRBY', RUN, 'attempt', 1)", ""),
    "failures count though there was a new checkpoint": ("release", "(run[2] == saves and tonumber", "(tonumber"),
    "failures do not count": ("release", "if failures >= most or", "if"),
    "who gives back and did not hear the answer is refused": (
        "release",
        "if how ~= 'lost' and run[1] == 'pending' and run[3] == token then",
        "if false then",
    ),
    "a retry starts before its time": (
        "claim",
        "if (tonumber(run[6]) or 0) > NOW then return {'early', run[7] or ''} end",
        "",
    ),
    "a cancel leaves the claim": (
        "cancel",
        "redis.call('HSET', TASK, 'token', '', 'run_id', '', 'cancelled_by', wake_id, ",
        "redis.call('HSET', TASK, 'cancelled_by', wake_id, ",
    ),
    "a walk cuts anew what was updated": ("cancel", "~= '1' and only_cut ~= '1' then", "~= '1' then"),
    "a cancel cuts nothing": ("cancel", "redis.call('HINCRBY', TASK, 'cut', 1)", ""),
    "a cancel cuts the children that are kept": (
        "cancel",
        "if keep_children ~= '1' and only_cut ~= '1' then\n",
        "if only_cut ~= '1' then\n",
    ),
    "a cancel tells one who rests for it nothing": (
        "cancel",
        "if quietly and not (parent[1] == 'running' and parent[2] == 'resting') then return {} end",
        "if quietly then return {} end",
    ),
    "a cancel frees the slot of code that is still at work": (
        "cancel",
        "if not running then unhold(task_id, run_id) end",
        "redis.call('ZREM', SLOTS, member(task_id, run_id))",
    ),
    "a cancel frees the lease of code that is still at work": (
        "cancel",
        "if not running then unhold(task_id, run_id) end",
        "unhold(task_id, run_id)",
    ),
    "half an answer is graded": (
        "settle",
        "if status == 'success' and not is_half and not grades",
        "if status == 'success' and not grades",
    ),
    "a parent does not stay open for work that is graded": (
        "settle",
        "leave_parent(task_id)\nend\nlocal parents_bell",
        "end\nif phase == '' and it ~= 'rests' then leave_parent(task_id) end\nlocal parents_bell",
    ),
    "a grader takes the news of the agent": ("claim", "if not run[3] and not grades then", "if not run[3] then"),
    "a grader takes a slot of the agent": (
        "claim",
        "if not grades then redis.call('ZADD', SLOTS,",
        "if true then redis.call('ZADD', SLOTS,",
    ),
    "a submit is not fenced": ("submit", "not holds(PARENT, by_run, by_epoch, by_token)", "false"),
    "a submit does not look for a cut": ("submit", "if is_cut(PARENT, 34) then return {'refused', 'cut'} end", ""),
    "a cancelled parent takes children": (
        "submit",
        "if status == 'cancelled' then return {'refused', 'cancelled'} end",
        "",
    ),
    "what is taken does not count as given": ("take", "redis.call('HSET', TASK, 'given', int(last))", ""),
    "one is taken twice": ("take", "int(tonumber(ARGV[4]) + 1)", "int(tonumber(ARGV[4]))"),
    "a take is not fenced": ("take", "if not holds(TASK, ARGV[1], ARGV[2], ARGV[3]) then return {'refused'} end", ""),
    "events are not fenced": ("emit", "if not holds(TASK, ARGV[1], ARGV[2], ARGV[3]) then return {'refused'} end", ""),
    "a heartbeat is not fenced": (
        "heartbeat",
        "local good = holds(task, run_id, epoch, token)",
        "local good = true",
    ),
    "a bell is rung by each sweeper": (
        "ring_again",
        "if not due or tonumber(due) > NOW then return {'refused'} end",
        "",
    ),
    "code that stopped keeps its slot": ("stopped", "{LEASES, RING_AT, SLOTS}", "{LEASES, RING_AT}"),
    "a cancelled run is freed though its worker is heard of": (
        "stopped",
        "if only_expired == '1' and lease_until > NOW then return {'refused'} end",
        "",
    ),
    "a webhook is not told of a cancel": ("cancel", "deliver(DUE, DELIVERY, told_by, delivery_id, told)", ""),
    "a webhook is not told of an expiry": ("expire", "deliver(DUE, DELIVERY, told_by, delivery_id, told)", ""),
    "a cancel leaves follow-ups": ("cancel", "redis.call('DEL', FOLLOW_UPS)", ""),
    "a task ends while a message waits": (
        "settle",
        "if redis.call('EXISTS', FOLLOW_UPS) == 1 then return 'goes on' end",
        "",
    ),
    "a task rests while a message waits": (
        "settle",
        "if redis.call('EXISTS', FOLLOW_UPS) == 1 then",
        "if not is_half and redis.call('EXISTS', FOLLOW_UPS) == 1 then",
    ),
    "a message that waited is given again": ("settle", "'LPOP', follow_ups", "'LINDEX', follow_ups, 0"),
    "the last message comes first": ("settle", "'LPOP', follow_ups", "'RPOP', follow_ups"),
    "what ends in between is told": ("settle", "it == 'ends' or it == 'asks'", "it ~= 'rests'"),
    "a question expires though a message waits": (
        "expire",
        "if redis.call('EXISTS', FOLLOW_UPS) == 1 then",
        "if false then",
    ),
    "a message that is sent again counts twice": ("update", "if made then", "if false then"),
    "an update goes by what it saw long ago": (
        "update",
        "task[1] .. '/' .. task[2] ~= seen or (redis.call('LINDEX', RUNS, -1) or '') ~= last_run",
        "false",
    ),
    "an update of a run above is not fenced": (
        "update",
        "by ~= '' and not holds(KEYS[31 + by], by_run, by_epoch, by_token)",
        "false",
    ),
    "a task that is updated stays cut": ("update", "take_place(TASK, 32)", ""),
    "a child that is updated is not open again": (
        "update",
        "if HAS_PARENT and facts[3] ~= '0' then redis.call('SADD', PARENT_OPEN, facts[1]) end",
        "",
    ),
    "a run that is overtaken before it began is still rung for": (
        "update",
        "  else\n    unhold(task_id, last_run)\n  end",
        "  end",
    ),
    "the lease of code that is overtaken is freed at once": (
        "update",
        "redis.call('PUBLISH', CONTROL, last_run)",
        "unhold(task_id, last_run)",
    ),
    "what a run did not save is lost": (
        "update",
        "if given then redis.call('HSET', LARGE",
        "if false then redis.call('HSET', LARGE",
    ),
    "the next run does not get what was not saved": ("claim", "  take_unsaved(inbox[3])\n", ""),
    "what a run did save comes again": (
        "update",
        "if not (well or is_saved) then\n",
        "if not well then\n",
    ),
    "a conversation stays when nobody is to begin with it": (
        "settle",
        "redis.call('HINCRBY', KEYS[#KEYS], 'runs', -1) <= 0",
        "false",
    ),
    "a fork that saved nothing begins anew without its parent's conversation": (
        "update",
        "if fork then redis.call('HSET', TASK, 'unsaved_fork', fork) end",
        "",
    ),
}


#: Rules about the slots of an agent.
BROKEN_SLOTS = {
    "a lease that ran out has no slot any more": (
        ("claim", "admit"),
        "if redis.call('ZSCORE', leases, it) then count = count + 1 else",
        "if false then count = count + 1 else",
    ),
    "a slot that nobody came for is kept for ever": (
        ("claim", "admit"),
        "else redis.call('ZREM', slots, it) end",
        "else count = count + 1 end",
    ),
    "whoever comes first has the slot": (
        ("claim",),
        "redis.call('ZRANK', SLOTS, it) < tonumber(slots) - taken(SLOTS, LEASES)",
        "taken(SLOTS, LEASES) < tonumber(slots)",
    ),
    "one whose slot is kept waits": (("claim",), "if score and score > NOW then return true end", ""),
    "a late heartbeat takes a slot": (
        ("heartbeat",),
        "if not ended or (ended[1] == 'cancelled' and ended[2] == token) then",
        "if true then",
    ),
    "more slots are dealt out than there are": (("admit",), "free = free - taken(slots, KEYS[1])", ""),
    "a slot is never free again": (("settle", "stopped", "cancel"), "{LEASES, RING_AT, SLOTS}", "{LEASES, RING_AT}"),
}


def test_each_rule_stands_in_its_script_once():
    """Quick, and always run: a script that reads otherwise by now needs its rule broken anew."""
    source = scripts.source
    assert [rule for rule, (name, right, _) in BROKEN.items() if source(name).count(right) != 1] == []
    slots = BROKEN_SLOTS.items()
    assert [rule for rule, (names, right, _) in slots if not all(right in source(name) for name in names)] == []


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_found(rule, monkeypatch, redis_url):
    name, right, wrong = BROKEN[rule]
    whole = scripts.source
    broken = whole(name).replace(right, wrong)
    monkeypatch.setattr(scripts, "source", lambda script: broken if script == name else whole(script))
    with pytest.raises(FOUND):
        walk(on_server(redis_url), examples=300, steps=50, same=True)


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("rule", BROKEN_SLOTS)
def test_a_broken_rule_about_slots_is_found(rule, monkeypatch):
    names, right, wrong = BROKEN_SLOTS[rule]
    whole = scripts.source
    broken = {name: whole(name).replace(right, wrong) for name in names}
    monkeypatch.setattr(scripts, "source", lambda script: broken.get(script) or whole(script))
    with pytest.raises(FOUND):
        machine_slots.walk()
