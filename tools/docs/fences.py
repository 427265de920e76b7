"""Fenced blocks of Markdown pages: ```LANGUAGE word key=value key="several words"."""

import dataclasses
import re
import shlex

FENCE = re.compile(r"^ {0,3}```(.*)$")


@dataclasses.dataclass
class Block:
    language: str
    attributes: dict  # a word without a value has ""
    text: str
    line: int  # of the opening fence, from 1


def split(text):
    """The page as a list of prose (str) and Blocks, in order."""
    parts, prose, block = [], [], None
    for number, line in enumerate(text.split("\n"), 1):
        fence = FENCE.match(line)
        if fence and block is None:
            parts.append("\n".join(prose) + "\n")
            words = shlex.split(fence.group(1)) or [""]
            attributes = dict(word.partition("=")[::2] for word in words[1:])
            block, prose = Block(words[0], attributes, "", number), []
        elif fence:
            block.text = "".join(each + "\n" for each in prose)
            parts.append(block)
            block, prose = None, []
        else:
            prose.append(line)
    if block is not None:
        raise ValueError(f"line {block.line}: a fence that is never closed")
    parts.append("\n".join(prose))
    return parts


def blocks(text):
    return [part for part in split(text) if isinstance(part, Block)]
