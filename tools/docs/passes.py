"""A page per pass, from what the code says of it, and a page per golden of their test."""

import html
import re

import headers

FOLDER = "autodist/passes"
# The parts of a Program's text, by the pass that makes them what they are.
WRITES = {"partition": "variables", "replicate": "ranks",
          "synchronise": ("slices", "collectives", "variables"), "fuse": "slices",
          "order": ("slices", "collectives"), "lower": "role"}


def words_of(name):
    """ParameterServerSlicesEveryVariable -> Parameter server slices every variable."""
    words = re.findall(r"[A-Z][a-z]*|[0-9]+", name)
    sentence = " ".join([words[0]] + [word.lower() for word in words[1:]])
    return re.sub(r"\b([CcGg]pu)(s?)\b", lambda found: found.group(1).upper() + found.group(2), sentence)


def names(root):
    """In the pipeline's order."""
    pipeline = (root / FOLDER / "pipeline.cc").read_text()
    return re.findall(r'\{"(\w+)", \w+, (?:true|false)\}', pipeline)


def promises(root):
    """Pass -> the comment above its declaration in pass.h."""
    items = headers.read((root / FOLDER / "pass.h").read_text())[1]
    return {name: item.comment for item in items for name in item.names[:1]}


def goldens(root):
    """Golden -> the title that its test has."""
    test = (root / FOLDER / "golden_test.cc").read_text()
    titles = {}
    for name, body in re.findall(r"TEST\(Golden, (\w+)\) \{(.*?)\n\}", test, re.S):
        for golden in re.findall(r'expect_golden\("(\w+)"', body):
            titles[golden] = words_of(name)
    return titles


def source_comments(text):
    """The comments of a pass's own functions and classes: those at the file's left edge."""
    intro = headers.comment_lines(text.split("\n"))
    found, block = [], []
    for line in text.split("\n")[len(intro):]:
        if line.startswith("//"):
            block.append(line)
        elif block:
            found.append(headers.comment_lines(block))
            block = []
    return intro, [each for each in found if not each[0].startswith("namespace")]


def pass_page(root, name, all_names, titles):
    path = f"{FOLDER}/{name}.cc"
    text = (root / path).read_text()
    intro, comments = source_comments(text)
    at = all_names.index(name)
    parts = [f"<h1>Pass {at + 1}: {name}</h1>", headers.prose(promises(root).get(name, []))]
    parts.append(headers.prose(intro))
    parts += [headers.prose(comment) for comment in comments]
    decisions = sorted(set(re.findall(r"docs/decisions/[\w-]+\.md", text)))
    links = [f'<li><a href="{path}">Its code</a></li>']
    links += [f'<li><a href="{each}">Decision {each.split("/")[-1][:3]}</a></li>' for each in decisions]
    around = [("Before it", at - 1), ("After it", at + 1)]
    links += [f'<li>{label}: <a href="passes/{all_names[i]}">{all_names[i]}</a></li>'
              for label, i in around if 0 <= i < len(all_names)]
    parts.append("<ul>" + "".join(links) + "</ul>")
    parts.append(f"<p><code>autodist plan GRAPH --dump-after {name}</code> prints the Program as it "
                 "stands after this pass.</p>")
    parts.append('<h2 id="examples">Examples</h2>'
                 "<p>What it writes, in the Programs of whole examples:</p>")
    for golden, title in sorted(titles.items(), key=lambda each: each[1]):
        written = written_by(root, name, golden)
        if written:
            parts.append(f"<details><summary>{title}</summary><pre><code>{html.escape(written)}</code></pre>"
                         f'<p><a href="goldens/{golden}">All of it</a></p></details>')
    return "\n".join(parts)


def written_by(root, name, golden):
    """The part of a golden's Program that the pass writes; all of it for a pass that is not named."""
    text = (root / FOLDER / "testdata" / f"{golden}.txt").read_text().split("\n# program\n")[1]
    part = WRITES.get(name)
    sections = re.split(r"\n\n(?=\w)", text.strip("\n"))
    return "\n\n".join(each for each in sections if part is None or each.startswith(part))


def golden_list(titles):
    return "<ul>" + "".join(f'<li><a href="goldens/{golden}">{title}</a></li>'
                            for golden, title in sorted(titles.items(), key=lambda each: each[1])) + "</ul>"


def golden_page(root, golden, title):
    text = (root / FOLDER / "testdata" / f"{golden}.txt").read_text()
    parts = [f"<h1>{title}</h1>"]
    sections = re.split(r"^# (cluster|strategy|graph|program)\n", text, flags=re.M)[1:]
    for name, body in zip(sections[::2], sections[1::2]):
        parts.append(f'<h2 id="{name}">{name.capitalize()}</h2>')
        parts.append("<pre><code>" + html.escape(body.strip("\n"), quote=False) + "</code></pre>")
    return "\n".join(parts)


def overview(root, all_names, titles):
    told = promises(root)
    intro = headers.read((root / FOLDER / "pipeline.h").read_text())[0]
    items = "".join(f'<li><a href="passes/{name}">{name}</a>: '
                    f'{headers.inline(" ".join(told.get(name, [])))}</li>' for name in all_names)
    return (f"<h1>Passes</h1>{headers.prose(intro)}<ol>{items}</ol>"
            "<h2 id=\"examples\">Examples</h2><p>Each is a whole job of the passes' test: a cluster, a "
            "strategy, a graph, and the Program that they make.</p>" + golden_list(titles))
