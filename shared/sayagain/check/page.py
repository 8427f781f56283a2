"""The report as one HTML page: no script, no other file."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from sayagain.check.diagram import diagram
from sayagain.check.model import Area, Result, Status, Tier
from sayagain.check.runner import Report
from sayagain.check.trace import Event
from sayagain.legible import clean, excerpt

__all__ = ["page"]

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1d2430; --soft: #5d6878; --paper: #fbfbf9; --card: #fff; --edge: #dfe3e8;
  --good: #1a7f4b; --bad: #c4302b; --warn: #a66300; --skip: #7b8594; --tint: #fdf0ef; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #9aa5b5; --paper: #14171c; --card: #1b2027;
  --edge: #303743; --good: #4cc38a; --bad: #ff7b72; --warn: #e3a44a; --skip: #8b96a5; --tint: #33201f; } }
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 1020px; padding: 40px 24px 80px; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif }
h1 { font-size: 30px; line-height: 1.2; margin: 0 0 6px }
h2 { font-size: 21px; margin: 44px 0 12px }
h3 { font-size: 17px; margin: 0 0 4px }
p { margin: 0 0 10px }
code { font: 13px/1.45 ui-monospace, "SF Mono", Consolas, monospace }
.soft { color: var(--soft) }
.verdict { display: flex; flex-wrap: wrap; gap: 12px; margin: 24px 0 8px }
.verdict div { flex: 1 1 130px; background: var(--card); border: 1px solid var(--edge); border-radius: 10px;
  padding: 12px 16px }
.verdict b { display: block; font-size: 28px; line-height: 1.15 }
.bar { display: flex; height: 10px; border-radius: 5px; overflow: hidden; background: var(--edge) }
.bar span { height: 100% }
table { width: 100%; border-collapse: collapse; background: var(--card); border: 1px solid var(--edge) }
td { padding: 7px 12px; border-top: 1px solid var(--edge); vertical-align: top; font-size: 15px }
td:first-child { width: 64px }
td:nth-child(2) { width: 270px }
tr:first-child td { border-top: 0 }
.pass { color: var(--good) } .fail { color: var(--bad) } .warn { color: var(--warn) } .skipped { color: var(--skip) }
.bar .pass { background: var(--good) } .bar .fail { background: var(--bad) }
.bar .warn { background: var(--warn) } .bar .skipped { background: var(--skip) }
.badge { font-weight: 600; font-size: 13px; white-space: nowrap }
.broken { background: var(--card); border: 1px solid var(--edge); border-left: 4px solid var(--bad);
  border-radius: 8px; padding: 18px 20px; margin: 0 0 20px; overflow-x: auto }
.broken.should { border-left-color: var(--warn) }
.area { font-size: 18px; margin: 30px 0 2px } .why { max-width: 78ch; margin-bottom: 14px }
.rule { font-size: 16px }
.found { background: var(--tint); border-radius: 6px; padding: 8px 12px } .bar + .found { margin-top: 16px }
details { margin-top: 8px } summary { cursor: pointer; color: var(--soft); font-size: 14px }
pre { overflow-x: auto; background: var(--paper); border: 1px solid var(--edge); border-radius: 6px; padding: 10px }
.sequence { width: 100%; min-width: 720px; height: auto; display: block; margin-top: 6px }
.sequence text { font: 11.5px ui-monospace, "SF Mono", Consolas, monospace; fill: var(--ink) }
.sequence .life { stroke: var(--edge); stroke-width: 2 }
.sequence .party { fill: var(--paper); stroke: var(--edge) }
.sequence .name, .sequence .folded, .sequence .aside { text-anchor: middle }
.sequence .name { font-weight: 700 }
.sequence .folded, .sequence .aside { fill: var(--soft) }
.sequence .note { fill: var(--paper); stroke: var(--edge); stroke-dasharray: 4 3 }
.sequence g line { stroke: var(--soft) } .sequence g polygon { fill: var(--soft) }
.sequence .number { font-size: 10px; fill: var(--soft) }
.sequence .shown line { stroke: var(--bad); stroke-width: 2 } .sequence .shown polygon { fill: var(--bad) }
.sequence .shown text { fill: var(--bad); font-weight: 700 }
a { color: inherit }
"""

LONGEST: Final = 4000
"""Characters of a line of the wire that are shown."""

LONGEST_REASON: Final = 1000

WHY: Final = {
    Area.BASE: "Clients are written against these rules. Where an agent has its own, each client needs a special case.",
    Area.KEYS: "A client that lost the answer to a prompt sends it again with the same key. If a rule is broken, the "
    "user's message is in the session twice, the model is paid twice, and every commit, deployment or mail of that "
    "prompt happens twice. Or the client does not dare to send again, and the prompt is lost without a word.",
    Area.KEY_VALUES: "A malformed key that is taken for none is a prompt without protection, and nobody learns of it.",
    Area.CANCEL: "A user who takes a prompt back must be able to rely on it: work that runs all the same is work that "
    "nobody watches.",
    Area.REPLAY: "What a client shows after a reconnect is what the replay tells. What is missing or doubled here is "
    "missing or doubled on the user's screen.",
    Area.MARKER: "Without a marker in its right place, a client cannot tell a whole history from one that was cut off, "
    "and may replace its good copy with a truncated one.",
    Area.CHILDREN: "Each subagent session has a history of its own, and its client needs to know where that ends.",
}
"""What a broken rule of an area does to people."""

_WORDS: Final = {"pass": "pass", "fail": "FAIL", "warn": "warn", "skipped": "skip"}


def page(report: Report, command: str, version: str) -> str:
    """The page; everything in it that comes from the agent is made fit to be shown, cut and escaped."""
    who = _said(" ".join(str(report.agent[name]) for name in ("name", "version") if report.agent.get(name)), 60)
    broken = [result for result in report.results if result.status is Status.FAIL]
    broken.sort(key=lambda result: result.check.tier is Tier.SHOULD)
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>sayagain check: {who or 'an agent'}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{who or 'The agent'}</h1>",
        f"<p class='soft'>ACP v2 conformance, checked over stdio with the profile {escape(report.profile)} in "
        f"{report.seconds:.0f} s by sayagain check {escape(version)}<br><code>{_said(command)}</code></p>",
        _verdict(report),
    ]
    if report.trouble:
        parts.append(f"<p class='found'><b class='fail'>The run was given up.</b> {_said(report.trouble)}</p>")
        if report.lines:
            parts.append(_wire(report.lines, "What was written"))
    if broken:
        parts.append("<h2>What is broken</h2>")
        for area in Area:
            if here := [result for result in broken if result.check.area is area]:
                parts.append(f"<h3 class='area'>{area.value}</h3><p class='why'>{WHY[area]}</p>")
                parts += map(_broken, here)
    for area in Area:
        results = [result for result in report.results if result.check.area is area]
        if results:
            lines = "".join(_line(result, report.trouble) for result in results)
            parts.append(f"<h2>{area.value}</h2><table>{lines}</table>")
    parts.append("</body></html>\n")
    return "".join(parts)


def _look(result: Result) -> str:
    if result.status is Status.FAIL and result.check.tier is Tier.SHOULD:
        return "warn"
    return result.status.value


def _verdict(report: Report) -> str:
    counts = {name: sum(_look(result) == name for result in report.results) for name in _WORDS}
    named = {"pass": "passed", "fail": "failed", "warn": "warnings", "skipped": "not judged"}
    boxes = "".join(f"<div><b class='{name}'>{counts[name]}</b>{named[name]}</div>" for name in _WORDS)
    total = max(1, len(report.results))
    bar = "".join(f"<span class='{name}' style='width:{100 * counts[name] / total:.2f}%'></span>" for name in _WORDS)
    return f"<div class='verdict'>{boxes}</div><div class='bar'>{bar}</div>"


def _line(result: Result, trouble: str) -> str:
    look = _look(result)
    # Why the run ended stands above.
    reason = result.reason.removesuffix(f": {trouble}") if result.not_run else result.reason
    check = result.check
    name = f"<a href='#{check.id}'>{check.id}</a>" if result.status is Status.FAIL else check.id
    should = " <span class='soft'>(should)</span>" if check.tier is Tier.SHOULD else ""
    why = "" if result.status is Status.PASS else f"<br><span class='{look}'>{_said(reason)}</span>"
    return (
        f"<tr><td class='badge {look}'>{_WORDS[look]}</td><td><code>{name}</code>{should}</td>"
        f"<td>{escape(check.rule)}{why}</td></tr>"
    )


def _broken(result: Result) -> str:
    check = result.check
    return (
        f"<section class='broken {check.tier.value}' id='{check.id}'><h3><code>{check.id}</code></h3>"
        f"<p class='rule'>{escape(check.rule)}</p>"
        f"<p class='soft'>{check.tier.value}: {escape(check.source.value)}, {escape(check.section)}</p>"
        f"<p class='found'>{_said(result.reason)}</p>"
        f"{diagram(result.trace, result.lines, f'What was written on the wire for {check.id}')}"
        f"{_wire(result.lines, 'The lines in red, as they were')}</section>"
    )


def _said(text: str, longest: int = LONGEST_REASON) -> str:
    return escape(excerpt(text, longest))


def _wire(lines: Sequence[Event], title: str) -> str:
    arrows = {"client": "->", "agent": "<-", "note": "  "}
    texts = "\n".join(_shown(f"#{event.index} {arrows[event.side]} ", event.text) for event in lines)
    return f"<details><summary>{title}</summary><pre><code>{texts}</code></pre></details>"


def _shown(head: str, text: str) -> str:
    return escape(head + clean(text[:LONGEST]) + ("…" if len(text) > LONGEST else ""))
