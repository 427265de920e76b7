"""What a page says of another page's figures.

    … 1.25 times as fast ([the table](docs/benchmarks/p3.md)).<!-- claims p3: 1.25 -->

Each value has to stand in the paragraph (or list item) that the comment is in, and among the figures.
Some pages may only say what is marked so, and of figures that are not older than what they are of.
"""

import re

import fences

MARK = re.compile(r"<!-- claims (?P<name>[\w-]+): (?P<values>.*?) -->", re.S)
# What reads as a measured figure. Seconds and gigabytes do not: limits and sizes have them, too.
FIGURE = re.compile(r"\d[\d.,]*(?: (?:times|%|ms|µs|samples/s|s/GB|GB/s)(?![\w/])|[%×])")


def units(text):
    """Paragraphs and list items of the prose."""
    for part in fences.split(text):
        if isinstance(part, str):
            yield from (each for each in re.split(r"\n\s*\n|\n(?=\s*[-*|] )", part) if each.strip())


def has(text, value):
    """The value, and not a part of a longer number."""
    return re.search(r"(?<![\d.,])" + re.escape(value) + r"(?!\d|[.,]\d)", text) is not None


def check(page, text, bodies, outdated, strict):
    """What is wrong with a page's claims. `bodies`: figures by name; `strict`: nothing unmarked."""
    problems = []
    for unit in units(text):
        unit = re.sub(r"`[^`]*`", "", unit)  # code is no claim
        said, marked = MARK.sub("", unit), []
        for mark in MARK.finditer(unit):
            name = mark["name"]
            values = [value.strip() for value in mark["values"].split(", ")]
            marked += values
            if name not in bodies:
                problems.append(f"{page}: claims of '{name}', which no page has figures of")
                continue
            if strict and name in outdated:
                problems.append(f"{page}: claims {', '.join(values)} of the figures '{name}', which are "
                                "older than what they depend on: say it without figures, or make them again")
            problems += [f"{page}: claims {value} of '{name}', but does not say so in that paragraph"
                         for value in values if not has(said, value)]
            problems += [f"{page}: claims {value} of '{name}', which has no such figure any more"
                         for value in values if not has(bodies[name], value)]
        if strict:
            problems += [f"{page}: '{figure.strip()}' is nobody's figure: mark whose with "
                         "<!-- claims NAME: VALUE -->, or leave it out"
                         for figure in FIGURE.findall(said)
                         if not any(has(figure, value) or figure.startswith(value) for value in marked)]
    return problems
