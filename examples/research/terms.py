"""Words that count: one tokeniser for the index, for what is asked and for what is found."""

from __future__ import annotations

import re
from functools import lru_cache

_WORD = re.compile(r"[^\W_]+")

_STOP = frozenset(
    """a about actually after again all also always am an and any anything are as at be because been before being both
    but by can could describe did do does doing done down during each either else ever every exactly explain few for
    from further had happen happened happens has have having he her here him his how i if in into is it its itself
    just kind let many may me mean means might more most much must my no nor not of off on once one only or other our
    out over own per please same she should since so some someone something still such tell than that the their them
    then there these they thing things this those though through to too under until up upon us very was way we were
    what whatever when where whether which while who whom whose why will with within without would you your""".split()  # noqa: SIM905 - two hundred quoted words would be harder to read
)

_SHORT = 3  #: letters: a word of no more is a stem already, and a stem has no fewer

#: Forms that no suffix rule can see.
_IRREGULAR = {
    "ran": "run", "woke": "wake", "woken": "wake", "held": "hold", "gave": "give", "given": "give", "sent": "send",
    "kept": "keep", "lost": "lose", "loss": "lose", "losses": "lose", "told": "tell", "rang": "ring", "rung": "ring",
    "written": "write", "wrote": "write", "began": "begin", "begun": "begin", "chose": "choose",
    "chosen": "choose", "made": "make", "took": "take", "taken": "take", "went": "go", "gone": "go", "came": "come",
    "dies": "die", "died": "die", "dying": "die", "dead": "die", "death": "die", "knew": "know", "known": "know",
    "found": "find", "built": "build", "spent": "spend", "left": "leave", "broke": "break", "broken": "break",
    "children": "child", "indices": "index",
}  # fmt: skip

_ENDINGS = (("ification", "ify"), ("ation", ""), ("ies", "y"), ("ied", "y"), ("ing", ""), ("ed", ""))


def words(text: str) -> list[tuple[str, str]]:
    """Each content word of a text in its order: (as it stands, its term). Terms compare; words are shown."""
    found = ((word, word.casefold()) for word in _WORD.findall(text))
    return [(word, stem(low)) for word, low in found if low not in _STOP and (len(low) > 1 or low.isdigit())]


def terms(text: str) -> list[str]:
    """The terms of a text in their order, doubles kept."""
    return [term for _, term in words(text)]


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """Cut what grammar adds, so that `cancelled`, `cancels` and `cancellation` are one term."""
    word = _IRREGULAR.get(word, word)
    if len(word) <= _SHORT or not word.isascii():
        return word
    if word.endswith("s") and not word.endswith(("ss", "us", "is", "ies")):
        word = word[: -2 if word.endswith(("ches", "shes", "sses", "xes", "zes")) else -1]
    for ending, instead in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORT:
            word = word[: -len(ending)] + instead
            break
    if len(word) > _SHORT and word[-1] == word[-2] and word[-1] not in "aeiou":
        word = word[:-1]
    return word[:-1] if len(word) > _SHORT and word.endswith("e") else word
