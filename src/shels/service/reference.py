"""The reference at /docs: every operation of the schema on one page, without a script."""

from __future__ import annotations

from html import escape
from typing import Any

_STYLE = "/docs.css"
CSS = """:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:0 auto;padding:1rem}
section{border-top:1px solid #8886;padding:.5rem 0}h2{margin-top:2rem}code{font-size:.95em}
.m{display:inline-block;min-width:4.5em;font-weight:700}td,th{padding:.1rem .8rem .1rem 0;text-align:left}
"""


def page(schema: dict[str, Any], icon: str) -> str:
    """Write the page of an OpenAPI schema. icon: the address of its picture."""
    by_tag: dict[str, list[str]] = {}
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            tag = (operation.get("tags") or ["the service"])[0]
            by_tag.setdefault(tag, []).append(_operation(method.upper(), path, operation))
    parts = [f"<h2>{escape(tag)}</h2>{''.join(found)}" for tag, found in by_tag.items()]
    title = f"{escape(schema['info']['title'])} {escape(schema['info']['version'])}"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<link rel="stylesheet" href="{_STYLE}"><link rel="icon" href="{icon}"></head><body><h1>{title}</h1>'
        '<p>The same for programs: <a href="/openapi.json">/openapi.json</a>. '
        "Refusals are problem documents (RFC 9457) that also hold <code>error</code>.</p>"
        f"{''.join(parts)}</body></html>"
    )


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    rows = [
        f"<tr><td><code>{escape(each['name'])}</code></td><td>{escape(each['in'])}</td>"
        f"<td>{escape(_kind(each.get('schema', {})))}</td></tr>"
        for each in operation.get("parameters", [])
    ]
    body = operation.get("requestBody", {}).get("content", {})
    rows += [
        f"<tr><td>body</td><td>{escape(kind)}</td><td>{escape(_kind(each.get('schema', {})))}</td></tr>"
        for kind, each in body.items()
    ]
    table = f"<table>{''.join(rows)}</table>" if rows else ""
    said = escape(operation.get("description") or operation.get("summary", ""))
    answers = ", ".join(escape(code) for code in operation.get("responses", {}))
    return (
        f'<section><span class="m">{method}</span><code>{escape(path)}</code><p>{said}</p>{table}'
        f"<small>answers: {answers}</small></section>"
    )


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(_kind(each) for each in schema["anyOf"])
    inner = f" of {_kind(schema['items'])}" if "items" in schema else ""
    return f"{schema.get('type', 'any')}{inner}"
