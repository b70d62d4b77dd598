"""A slow second opinion on tagged answers, written from behaviour.md H.7 and O.35, 36 and 51: a whole answer in, a whole
answer out. Bytes stay bytes: it finds the places where a tag goes in and changes nothing else.

Where the text says nothing it agrees with core/rewrite.c on this: text after a breach of JSON's grammar is left alone, in
an event stream until the next event; NaN and Infinity are numbers; a byte order mark does not count. One thing only the
other does: it counts brackets deeper than 64 levels without looking at their kind. This one looks, so do not compare the
two on broken text that is as deep.
"""
import re

BOM = b'\xef\xbb\xbf'
ID_NAMES = {b'id', b'previous_response_id', b'response_id', b'conversation', b'conversation_id'}
OWN_NAMES = {b'response', b'conversation'}
PREFIXES = (b'resp_', b'conv_')

SPACE = re.compile(rb'[ \t\r\n]*')
STRING = re.compile(rb'"((?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*)"')
SCALAR = re.compile(rb'-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null|NaN|-?Infinity')
LINE_END = re.compile(rb'\r\n|\r|\n|\Z')


class Breach(Exception):
    """The text is no JSON from here on, or ends."""


class Text:
    """One JSON text; `places` are the offsets at which a tag goes in, as far as the text is good."""

    def __init__(self, text, tag):
        self.text, self.tag, self.at, self.places = text, tag, 0, []
        try:
            self.read()
        except Breach:
            pass

    def peek(self):
        self.at = SPACE.match(self.text, self.at).end()
        if self.at == len(self.text):
            raise Breach
        return self.text[self.at:self.at + 1]

    def take(self, wanted):
        if self.peek() != wanted:
            raise Breach
        self.at += 1

    def match(self, pattern):
        found = pattern.match(self.text, self.at)
        if not found:
            raise Breach
        self.at = found.end()
        return found

    def read(self):
        open_ones = []  # (closing bracket, is it an own object?)
        self.value(open_ones, None, True)
        while open_ones:
            close, own = open_ones[-1]
            fresh = self.fresh
            self.fresh = False
            if self.peek() == close:
                self.at += 1
                open_ones.pop()
                continue
            if not fresh:
                self.take(b',')
            name = None
            if close == b'}':
                self.peek()
                name = self.match(STRING)[1]
                self.take(b':')
            self.value(open_ones, name, own)

    def value(self, open_ones, name, own):
        byte = self.peek()
        self.fresh = byte in (b'{', b'[')  # then no comma is due
        if self.fresh:
            self.at += 1
            inherits = byte == b'{' and own and (name in OWN_NAMES or not open_ones)
            open_ones.append((b'}' if byte == b'{' else b']', inherits))
        elif byte == b'"':
            if own and name in ID_NAMES:
                self.id()
            self.match(STRING)
        else:
            self.match(SCALAR)

    def id(self):
        start = self.at + 6
        if self.text[start - 5:start] not in PREFIXES:
            return
        same = 0
        while same < len(self.tag) and self.text[start + same:start + same + 1] == self.tag[same:same + 1]:
            same += 1
        if same == len(self.tag) or start + same == len(self.text):
            return  # tagged, or cut off before one can tell
        byte = self.text[start + same]
        if byte < 0x20 or (byte == 0x22 and same == 0):
            return  # broken, or nothing but the prefix
        self.places.append(start)


def json_places(body, start, tag):
    return [start + place for place in Text(body[start:], tag).places]


def event_places(body, start, tag):
    places, event = [], []  # the data lines of the event: (offset, bytes)

    def done():
        text = Text(b'\n'.join(line for _, line in event), tag)
        for place in text.places:
            for offset, line in event:
                if place <= len(line):
                    places.append(offset + place)
                    break
                place -= len(line) + 1
        event.clear()

    at = start
    while at < len(body):
        end = LINE_END.search(body, at)
        line = body[at:end.start()]
        if not line:
            done()
        elif line == b'data' or line.startswith(b'data:'):
            skip = 4 if line == b'data' else 6 if line.startswith(b'data: ') else 5
            event.append((at + skip, line[skip:]))
        at = end.end()
    done()
    return places


def places(body, sse, tag):
    """The offsets of the answer at which the tag goes in, in order."""
    start = len(BOM) if body.startswith(BOM) else 0
    first = SPACE.match(body, start).end()
    if not sse and body[first:first + 1] in (b'{', b'['):
        return json_places(body, start, tag)
    return event_places(body, start, tag)


def tagged(body, sse, tag):
    out, at = [], 0
    for place in places(body, sse, tag):
        out += [body[at:place], tag]
        at = place
    return b''.join(out + [body[at:]])
