"""C++ headers as reference pages: each declaration with the comment above it."""

import dataclasses
import html
import re
import textwrap

DECLARED = re.compile(r"(?:struct|class|enum class|enum) (\w+)|using (\w+) = "
                      r"|[\w\[][^=;{}()]*[ &*](\w+)\(")


@dataclasses.dataclass
class Item:
    names: list  # of what it declares
    comment: list
    code: str


def comment_lines(lines):
    """The // lines at the beginning, without their marks."""
    taken = []
    for line in lines:
        if not line.startswith("//"):
            break
        taken.append(line[3:] if line.startswith("// ") else line[2:])
    return taken


def depth_change(line):
    code = re.sub(r'"(\\.|[^"\\])*"|\'(\\.|[^\'\\])\'|//.*', "", line)
    return code.count("{") - code.count("}")


def read(text):
    """What the file says of itself, and its Items."""
    lines = text.split("\n")
    intro = comment_lines(lines)
    chunks, chunk, depth = [], [], 0
    for line in lines[len(intro):] + [""]:
        scope = re.match(r"(namespace [\w:]+ \{|\}  // namespace)", line)
        if depth == 0 and (not line or scope or line.startswith("#")):
            if chunk:
                chunks.append(chunk)
            chunk = []
            continue
        depth += depth_change(line)
        chunk.append(line)
    items = []
    for chunk in chunks:
        comment = comment_lines(chunk)
        code = "\n".join(chunk[len(comment):])
        items.append(Item(names_in(code), comment, code))
    return intro, items


def names_in(code):
    """What stands at the left edge."""
    names = []
    for line in code.split("\n"):
        found = DECLARED.match(line)
        name = next((group for group in found.groups() if group), "") if found else ""
        if name and name not in names:
            names.append(name)
    return names


def inline(text):
    text = html.escape(text, quote=False)
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", text)
    return text.replace("REQUIRES:", "<strong>Requires:</strong>")


def prose(lines):
    """A comment as HTML: paragraphs, and what is indented as it stands."""
    parts, kind = [], None
    for line in lines:
        now = None if not line.strip() else "pre" if line.startswith("  ") else "p"
        if now and now == kind:
            parts[-1][1].append(line)
        elif now:
            parts.append((now, [line]))
        kind = now
    result = []
    for kind, each in parts:
        if kind == "pre":
            text = textwrap.dedent("\n".join(each))
            result.append("<pre><code>" + html.escape(text, quote=False) + "</code></pre>")
        else:
            result.append("<p>" + inline(" ".join(each)) + "</p>")
    return "\n".join(result)


def page(path, text):
    """The body of one header's page."""
    intro, items = read(text)
    parts = [f"<h1><code>{path.split('autodist/', 1)[-1]}</code></h1>", prose(intro),
             f'<pre><code>#include "{path}"</code></pre>']
    seen = set()
    for item in items:
        new = [name for name in item.names if name not in seen]
        seen.update(new)
        if new:
            others = "".join(f'<a id="{name}"></a>' for name in new[1:])
            title = ", ".join(f"<code>{name}</code>" for name in item.names)
            link = f'<a class="headerlink" href="#{new[0]}">#</a>'
            parts.append(f'<h2 id="{new[0]}">{title}{link}</h2>{others}')
        parts.append(prose(item.comment))
        if item.code:
            parts.append("<pre><code>" + html.escape(item.code, quote=False) + "</code></pre>")
    return "\n".join(parts)


def first_sentence(text):
    intro = " ".join(read(text)[0])
    return re.split(r"(?<=[.:])\s", intro)[0]
