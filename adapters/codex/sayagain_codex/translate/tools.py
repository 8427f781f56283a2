"""Tool calls that are neither commands nor patches: MCP and dynamic tools, searches, images, reviews, and new kinds."""

from __future__ import annotations

import re
from typing import Any, Final

from sayagain.protocol.loose import Block, Json, as_list, as_mapping, as_text, clean
from sayagain_codex.translate.blocks import (
    absolute_path,
    call_status,
    file_uri,
    first_line,
    mcp_block,
    output_blocks,
    shown,
    text_content,
)

__all__ = [
    "dynamic_updates",
    "image_updates",
    "mcp_updates",
    "output_updates",
    "review_updates",
    "search_updates",
    "sleep_updates",
    "unknown_updates",
    "view_updates",
]

_WORDS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[_\-]+")


def _call(item: Json, name: str, kind: str, title: str, status: str) -> Block:
    return {
        "sessionUpdate": "tool_call_update",
        "toolCallId": as_text(item.get("id")),
        "name": name,
        "title": first_line(title) or name,
        "kind": kind,
        "status": status,
    }


def mcp_updates(item: Json, *, live: bool, cwd: str) -> list[Block]:
    """A call of an MCP server's tool: what it returned, or why it failed."""
    server, tool = as_text(item.get("server")), as_text(item.get("tool"))
    update = _call(item, f"mcp__{server}__{tool}", "other", f"{server}: {tool}", call_status(item, live=live))
    arguments = item.get("arguments")
    if arguments is not None:
        update["rawInput"] = clean(arguments)
    result = as_mapping(item.get("result"))
    blocks = [mcp_block(as_mapping(block)) for block in as_list(result.get("content"))]
    content = [shown(block) for block in blocks if block is not None]
    error = as_text(as_mapping(item.get("error")).get("message"))
    if error:
        content.append(text_content(error))
    if content:
        update["content"] = content
    if result.get("structuredContent") is not None:
        update["rawOutput"] = clean(result["structuredContent"])
    return [update]


def dynamic_updates(item: Json, *, live: bool, cwd: str) -> list[Block]:
    """A call of a tool that the client itself offered."""
    namespace, tool = as_text(item.get("namespace")), as_text(item.get("tool"))
    name = f"{namespace}.{tool}" if namespace else tool
    status = call_status(item, live=live)
    if item.get("success") is False and status == "completed":
        status = "failed"
    update = _call(item, name, "other", name, status)
    if item.get("arguments") is not None:
        update["rawInput"] = clean(item["arguments"])
    content = [shown(block) for block in output_blocks(item.get("contentItems"))]
    if content:
        update["content"] = content
    return [update]


def output_updates(item: Json, *, live: bool, cwd: str) -> list[Block]:
    """The output of a function that has no item of its own."""
    namespace, tool = as_text(item.get("namespace")), as_text(item.get("name"))
    name = f"{namespace}.{tool}" if namespace else tool
    update = _call(item, name, "other", name or "Tool output", "completed")
    content = [shown(block) for block in output_blocks(item.get("output"))]
    if content:
        update["content"] = content
    return [update]


def search_updates(item: Json, *, live: bool, cwd: str) -> list[Block]:
    """A search on the web, or a page that was opened in one. It has no status: it is over once its action is known."""
    action = as_mapping(item.get("action"))
    query, url, kind = as_text(item.get("query")), as_text(action.get("url")), "search"
    match action.get("type"):
        case "openPage" if url:
            kind, title = "fetch", f"Open {url}"
        case "findInPage" if url:
            kind, title = "fetch", f"Find `{as_text(action.get('pattern'))}` in {url}"
        case _:
            queries = [text for text in map(as_text, as_list(action.get("queries"))) if text]
            query = as_text(action.get("query")) or query or ", ".join(queries)
            title = f"Search the web: {query}" if query else "Search the web"
    update = _call(item, "web_search", kind, title, "completed")
    raw: dict[str, Any] = {name: clean(item[name]) for name in ("query", "action") if item.get(name)}
    if raw:
        update["rawInput"] = raw
    if item.get("results") is not None:
        update["rawOutput"] = clean(item["results"])
    return [update]


def view_updates(item: Json, *, live: bool, cwd: str) -> list[Block]:
    """An image file that the model looked at."""
    path = absolute_path(item.get("path"), cwd)
    shown_path = as_text(item.get("path")).removeprefix(cwd.rstrip("/") + "/")
    update = _call(item, "view_image", "read", f"View {shown_path}".strip(), "completed")
    if path:
        update["locations"] = [{"path": path}]
        name = re.split(r"[/\\]", path)[-1]
        update["content"] = [shown({"type": "resource_link", "name": name or path, "uri": file_uri(path)})]
    return [update]


def image_updates(item: Json, *, live: bool, cwd: str) -> list[Block]:
    """An image that the model made; ``result`` is its base64."""
    failed = item.get("failure") is not None
    status = "failed" if failed else _image_status(item, live)
    update = _call(item, "image_generation", "other", "Generate an image", status)
    prompt, data, saved = as_text(item.get("revisedPrompt")), as_text(item.get("result")), item.get("savedPath")
    if prompt:
        update["rawInput"] = {"prompt": prompt}
    if data:
        update["content"] = [shown({"type": "image", "data": data, "mimeType": _image_type(data)})]
    elif failed:
        update["content"] = [text_content(as_text(as_mapping(item["failure"]).get("message")) or "No image was made")]
    path = absolute_path(saved, cwd)
    if path:
        update["locations"] = [{"path": path}]
    return [update]


def _image_status(item: Json, live: bool) -> str:
    status = as_text(item.get("status"))
    if status in ("generating", "in_progress", "inProgress"):
        return "in_progress" if live else "failed"
    return "failed" if status in ("failed", "incomplete") else "completed"


def _image_type(data: str) -> str:
    """The type of an image by how its base64 begins."""
    signatures = {"/9j/": "image/jpeg", "UklGR": "image/webp", "R0lGOD": "image/gif"}
    return next((kind for start, kind in signatures.items() if data.startswith(start)), "image/png")


def review_updates(item: Json, *, live: bool, cwd: str) -> list[Block]:
    """A review begins. Its findings come as a message of their own (measured)."""
    text = as_text(item.get("review"))
    return [_call(item, "review", "think", f"Review: {text}" if text.strip() else "Review", "completed")]


def sleep_updates(item: Json, *, live: bool, cwd: str) -> list[Block]:
    """The model waits."""
    duration = item.get("durationMs")
    seconds = f" {duration / 1000:g} s" if type(duration) is int and 0 <= duration < 10**12 else ""
    return [_call(item, "sleep", "other", f"Wait{seconds}", "completed")]


def unknown_updates(item: Json, *, live: bool, cwd: str) -> list[Block]:
    """An item of a kind that this version does not know: that it happened, and the text that it has."""
    kind = as_text(item.get("type"))
    title = _WORDS.sub(" ", kind).strip().capitalize() or "Unknown"
    update = _call(item, kind or "unknown", "other", title, call_status(item, live=live))
    text = as_text(item.get("text"))
    if text:
        update["content"] = [text_content(text)]
    return [update]
