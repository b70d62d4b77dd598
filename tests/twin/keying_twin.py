"""A slow, independent reading of the keying rules, for tests.

Written from the rules and from the framing described at the head of core/rows.c, not from its code: it parses into a tree, holds
the whole stream and knows no slices. A digest is eight bytes of BLAKE2b here and eight bytes of a seeded hash there, so
streams are compared by their length and by how far two of them agree, never by value.

    look(api, body) -> Look(reason, model, salt, stream)
"""
import codecs
import hashlib
import struct
from collections import namedtuple

BLOCK = 256
MAX_KEYS = 512
CANONICAL_MAX = 16384
DEPTH_MAX = 128

Look = namedtuple('Look', 'reason model salt stream')
Node = namedtuple('Node', 'kind start end value')  # value: text bytes or None, list of nodes, list of (name, node)


class Refused(Exception):
    pass


class Full(Exception):
    pass


class Bad(Exception):
    """Not JSON."""


ESCAPES = {b'b': 8, b'f': 12, b'n': 10, b'r': 13, b't': 9}


# ---- JSON ------------------------------------------------------------------------------------------------------------

class Parser:
    def __init__(self, data):
        self.data, self.at = data, 0

    def space(self):
        while self.at < len(self.data) and self.data[self.at] in b' \t\r\n':
            self.at += 1

    def byte(self):
        if self.at >= len(self.data):
            raise Bad
        return self.data[self.at:self.at + 1]

    def whole(self):
        node = self.value()
        self.space()
        if self.at != len(self.data):
            raise Bad
        return node

    def value(self):
        self.space()
        start, first = self.at, self.byte()
        if first == b'"':
            return Node('string', start, *self.string())
        if first == b'{':
            return self.container('object', b'}', self.member)
        if first == b'[':
            return self.container('array', b']', self.value)
        for word in (b'null', b'true', b'false'):
            if self.data.startswith(word, start):
                self.at += len(word)
                return Node('null' if word == b'null' else 'bool', start, self.at, None)
        return self.number()

    def container(self, kind, close, entry):
        start, entries = self.at, []
        self.at += 1
        self.space()
        if self.byte() != close:
            entries.append(entry())
            self.space()
            while self.byte() == b',':
                self.at += 1
                entries.append(entry())
                self.space()
            if self.byte() != close:
                raise Bad
        self.at += 1
        return Node(kind, start, self.at, entries)

    def member(self):
        self.space()
        if self.byte() != b'"':
            raise Bad
        name = self.string()[1]
        self.space()
        if self.byte() != b':':
            raise Bad
        self.at += 1
        return name, self.value()

    def number(self):
        start = self.at
        if self.byte() == b'-':
            self.at += 1
        if self.byte() == b'0':
            self.at += 1
        else:
            self.digits()
        if self.data[self.at:self.at + 1] == b'.':
            self.at += 1
            self.digits()
        if self.data[self.at:self.at + 1] in (b'e', b'E'):
            self.at += 1
            if self.data[self.at:self.at + 1] in (b'+', b'-'):
                self.at += 1
            self.digits()
        return Node('number', start, self.at, None)

    def digits(self):
        start = self.at
        while self.at < len(self.data) and self.data[self.at] in b'0123456789':
            self.at += 1
        if self.at == start:
            raise Bad

    def string(self):
        """(end, decoded bytes or None when it is not valid UTF-8 or holds half a surrogate pair)"""
        self.at += 1
        units = []
        while True:
            first = self.byte()
            self.at += 1
            if first == b'"':
                break
            if first[0] < 0x20:
                raise Bad
            if first != b'\\':
                units.append(first)
                continue
            letter = self.byte()
            self.at += 1
            if letter == b'u':
                digits = self.data[self.at:self.at + 4]
                if len(digits) < 4 or any(d not in b'0123456789abcdefABCDEF' for d in digits):
                    raise Bad
                self.at += 4
                units.append(int(digits, 16))
            elif letter in (b'"', b'\\', b'/', b'b', b'f', b'n', b'r', b't'):
                units.append(ESCAPES.get(letter, letter[0]))
            else:
                raise Bad
        return self.at, decode_units(units)


def decode_units(units):
    """Bytes stand as they are, numbers are UTF-16 units of escapes. Raw bytes and escapes never join to a character."""
    out, i = [], 0
    raw = bytearray()
    try:
        while i < len(units):
            unit = units[i]
            i += 1
            if isinstance(unit, bytes):
                raw += unit
                continue
            raw.decode('utf-8')
            out.append(bytes(raw))
            raw.clear()
            if 0xD800 <= unit < 0xDC00 and i < len(units) and isinstance(units[i], int) and 0xDC00 <= units[i] < 0xE000:
                unit = 0x10000 + ((unit - 0xD800) << 10) + units[i] - 0xDC00
                i += 1
            out.append(chr(unit).encode('utf-8'))
        raw.decode('utf-8')
        out.append(bytes(raw))
    except UnicodeError:
        return None
    return b''.join(out)


def depth_of(node):
    if node.kind == 'array':
        return 1 + max((depth_of(n) for n in node.value), default=0)
    if node.kind == 'object':
        return 1 + max((depth_of(n) for _, n in node.value), default=0)
    return 0


def text_of(decoded):
    out = bytearray(b'"')
    short = {8: b'\\b', 9: b'\\t', 10: b'\\n', 12: b'\\f', 13: b'\\r', 34: b'\\"', 92: b'\\\\'}
    for byte in decoded:
        out += short.get(byte) or (b'\\u%04x' % byte if byte < 0x20 else bytes([byte]))
    return bytes(out + b'"')


def canonical(data, node):
    if node.kind == 'string':
        if node.value is None:
            raise Refused('bad_utf8')
        return text_of(node.value)
    if node.kind == 'array':
        return b'[' + b','.join(canonical(data, n) for n in node.value) + b']'
    if node.kind == 'object':
        last = {}
        for name, value in node.value:
            if name is None:
                raise Refused('bad_utf8')
            last[name] = canonical(data, value)
        return b'{' + b','.join(text_of(k) + b':' + last[k] for k in sorted(last)) + b'}'
    return data[node.start:node.end]


# ---- the stream ------------------------------------------------------------------------------------------------------

class Stream:
    def __init__(self, data):
        self.data, self.out = data, bytearray()

    def put(self, piece):
        self.out += piece
        if len(self.out) >= BLOCK * MAX_KEYS:
            raise Full

    def raw(self, node):
        token = self.data[node.start:node.end][:BLOCK * MAX_KEYS - len(self.out)]
        try:
            codecs.getincrementaldecoder('utf-8')().decode(token, False)
        except UnicodeError:
            raise Refused('bad_utf8') from None
        self.put(token)

    def digest(self, node):
        token = self.data[node.start:node.end]
        try:
            token.decode('utf-8')
        except UnicodeError:
            raise Refused('bad_utf8') from None
        self.put(hashlib.blake2b(token, digest_size=8).digest())

    def field(self, tag, node):
        self.put(tag + b'\x1f')
        self.raw(node)
        self.put(b'\x1f')

    def digested(self, tag, node):
        self.put(tag + b'\x1f#')
        self.digest(node)
        self.put(b'\x1f')

    def text(self, node):
        if node.kind != 'string':
            raise Refused('bad_type')
        self.field(b'text', node)

    def name(self, tag, node):
        if node.kind != 'string':
            raise Refused('bad_type')
        if node.value is None:
            raise Refused('bad_utf8')
        self.put(tag + b'\x1f' + struct.pack('<Q', len(node.value)) + node.value + b'\x1f')

    def sent(self, tag, node):
        long = node.kind != 'string' and node.end - node.start > CANONICAL_MAX
        (self.digested if long else self.field)(tag, node)

    def canonical(self, tag, node):
        if node.end - node.start > CANONICAL_MAX:
            return self.digested(tag, node)
        whole, problem = b'', None
        try:
            whole = canonical(self.data, node)
        except Refused as refused:
            problem = refused
        if depth_of(node) > DEPTH_MAX:
            raise Refused('too_deep')
        if problem:
            raise problem
        self.put(tag + b'\x1f' + whole + b'\x1f')

    def arguments(self, tag, node):
        if node.end - node.start > CANONICAL_MAX:
            return self.digested(tag, node)
        if node.kind == 'string' and node.value is not None:
            try:
                inner = Parser(node.value).whole()
                if depth_of(inner) <= DEPTH_MAX:
                    return self.put(tag + b'\x1f' + canonical(node.value, inner) + b'\x1f')
            except (Bad, Refused):
                pass
        self.field(tag, node)


class Fields:
    """The read fields of an object; of a repeated one the last."""

    def __init__(self, node, reads):
        if node.kind != 'object':
            raise Refused('bad_type')
        self.seen, self.twice = {}, False
        for name, value in node.value:
            if name is None or name.decode() not in reads:
                continue
            self.twice |= name.decode() in self.seen
            self.seen[name.decode()] = value

    def checked(self):
        if self.twice:
            raise Refused('duplicate_field')
        return self

    def get(self, name):
        node = self.seen.get(name)
        return None if node is None or node.kind == 'null' else node

    def need(self, name):
        node = self.get(name)
        if node is None:
            raise Refused('missing_field')
        return node

    def type(self, plain=None):
        node = self.get('type')
        if node is None:
            if plain is None:
                raise Refused('missing_field')
            return plain
        if node.kind != 'string':
            raise Refused('bad_type')
        if node.value is None:
            raise Refused('bad_utf8')
        return node.value.decode()


CHAT_PART = 'type text refusal image_url video_url audio_url input_audio file image_embeds uuid'.split()
BLOCK_PART = 'type text source name input content uuid'.split()
ITEM = 'type role content name arguments input output'.split()
RESPONSE_PART = 'type text refusal image_url file_id file_data file_url input_audio uuid'.split()


def media(stream, fields, kind, holder, keys):
    uuid = fields.get('uuid')
    if uuid is not None and uuid.kind == 'string':
        return stream.digested(kind.encode(), uuid)
    if holder is not None:
        fields = Fields(fields.need(holder), keys).checked()
    for key in keys:
        node = fields.get(key)
        if node is not None:
            if node.kind != 'string':
                raise Refused('bad_type')
            return stream.digested(kind.encode(), node)
    raise Refused('missing_field')


def items_of(node):
    if node.kind != 'array':
        raise Refused('bad_type')
    return node.value


def content(stream, node, part):
    if node is None:
        return
    if node.kind == 'string':
        return stream.text(node)
    for entry in items_of(node):
        part(stream, entry)


def chat_part(stream, node):
    fields = Fields(node, CHAT_PART).checked()
    kind = fields.type()
    if kind in ('text', 'refusal'):
        stream.text(fields.need(kind))
    elif kind in ('image_url', 'video_url', 'audio_url'):
        media(stream, fields, kind, kind, ['url'])
    elif kind == 'input_audio':
        media(stream, fields, kind, kind, ['data'])
    elif kind == 'file':
        media(stream, fields, kind, kind, ['file_data', 'file_id'])
    elif kind == 'image_embeds':
        uuid = fields.get('uuid')
        stream.digested(b'image_embeds', uuid if uuid is not None and uuid.kind == 'string' else fields.need(kind))
    else:
        raise Refused('unknown_part')


def call(stream, fields, arguments):
    stream.name(b'call', fields.need('name'))
    if fields.get(arguments) is not None:
        stream.arguments(b'arguments', fields.get(arguments))


def chat(stream, top):
    if top.get('chat_template') is not None:
        stream.sent(b'chat_template', top.get('chat_template'))
    for name in ('chat_template_kwargs', 'documents', 'tools'):
        if top.get(name) is not None:
            stream.canonical(name.encode(), top.get(name))
    for node in items_of(top.need('messages')):
        message = Fields(node, ['role', 'content', 'tool_calls']).checked()
        stream.name(b'role', message.need('role'))
        content(stream, message.get('content'), chat_part)
        calls = message.get('tool_calls')
        for entry in items_of(calls) if calls is not None else []:
            payloads = Fields(entry, ['function', 'custom']).checked()
            if payloads.get('function') is None and payloads.get('custom') is None:
                raise Refused('unknown_part')
            for payload, arguments in (('function', 'arguments'), ('custom', 'input')):
                if payloads.get(payload) is not None:
                    call(stream, Fields(payloads.get(payload), ['name', arguments]).checked(), arguments)


def completions(stream, top):
    node = top.need('prompt')
    if node.kind == 'array':
        if not node.value:
            raise Refused('many_prompts')
        if node.value[0].kind in ('number', 'array'):
            raise Refused('token_array')
        if len(node.value) > 1:
            raise Refused('many_prompts')
        node = node.value[0]
    stream.text(node)


class Blocks:
    """Anthropic's blocks; `system` skips one client's billing block."""

    def __init__(self, system=False):
        self.system = system

    def __call__(self, stream, node):
        fields = Fields(node, BLOCK_PART).checked()
        kind = fields.type()
        if kind == 'text':
            text = fields.get('text')
            if self.system and text is not None and text.kind == 'string' and billing(stream.data, text):
                return
            stream.text(fields.need('text'))
        elif kind in ('image', 'document'):
            media(stream, fields, kind, 'source', ['data', 'url', 'file_id'])
        elif kind == 'tool_use':
            stream.name(b'call', fields.need('name'))
            if fields.get('input') is not None:
                stream.canonical(b'arguments', fields.get('input'))
        elif kind == 'tool_result':
            stream.put(b'result\x1f\x1f')
            inner = fields.get('content')
            content(stream, inner, Blocks())
            if inner is not None:
                stream.put(b'end\x1f\x1f')
        elif kind not in ('thinking', 'redacted_thinking'):
            raise Refused('unknown_part')


def billing(data, node):
    """Judged on the first bytes alone, whatever stands behind them."""
    prefix = b'x-anthropic-billing-header'
    for end in range(node.start + 1 + len(prefix), min(node.end, node.start + 1 + 6 * len(prefix) + 1)):
        try:
            if Parser(data[node.start:end] + b'"').string()[1] == prefix:
                return True
        except Bad:
            continue
    return False


def messages(stream, top):
    if top.get('tools') is not None:
        stream.canonical(b'tools', top.get('tools'))
    content(stream, top.get('system'), Blocks(system=True))
    for node in items_of(top.need('messages')):
        message = Fields(node, ['role', 'content']).checked()
        stream.name(b'role', message.need('role'))
        if 'content' not in message.seen:
            raise Refused('missing_field')
        content(stream, message.get('content'), Blocks())


def response_part(stream, node):
    fields = Fields(node, RESPONSE_PART).checked()
    kind = fields.type()
    if kind in ('input_text', 'output_text'):
        stream.text(fields.need('text'))
    elif kind == 'refusal':
        stream.text(fields.need('refusal'))
    elif kind == 'input_image':
        media(stream, fields, kind, None, ['image_url', 'file_id'])
    elif kind == 'input_file':
        media(stream, fields, kind, None, ['file_data', 'file_id', 'file_url'])
    elif kind == 'input_audio':
        media(stream, fields, kind, 'input_audio', ['data'])
    else:
        raise Refused('unknown_part')


def responses(stream, top):
    for name, reason in (('previous_response_id', 'stored_state'), ('conversation', 'stored_state'),
                         ('prompt', 'prompt_template')):
        if top.get(name) is not None:
            raise Refused(reason)
    if top.get('tools') is not None:
        stream.canonical(b'tools', top.get('tools'))
    if top.get('instructions') is not None:
        stream.sent(b'instructions', top.get('instructions'))
    node = top.need('input')
    if node.kind == 'string':
        stream.put(b'role\x1f' + struct.pack('<Q', 4) + b'user\x1f')
        return stream.text(node)
    for entry in items_of(node):
        item = Fields(entry, ITEM).checked()
        kind = item.type('message')
        if kind == 'message':
            stream.name(b'role', item.need('role'))
            content(stream, item.get('content'), response_part)
        elif kind == 'function_call':
            call(stream, item, 'arguments')
        elif kind == 'custom_tool_call':
            call(stream, item, 'input')
        elif kind in ('function_call_output', 'custom_tool_call_output'):
            stream.put(b'result\x1f\x1f')
            output = item.need('output')
            stream.text(output) if output.kind == 'string' else stream.canonical(b'text', output)
        elif kind != 'reasoning':
            raise Refused('unknown_part')


TOPS = {
    'chat': (chat, 'model cache_salt chat_template chat_template_kwargs documents tools messages'.split()),
    'completions': (completions, 'model cache_salt prompt'.split()),
    'messages': (messages, 'model cache_salt tools system messages'.split()),
    'responses': (responses, 'model cache_salt previous_response_id conversation prompt tools instructions input'.split()),
}


def look(api, body):
    """What the keys of a body must be like: why there are none (None: there are), its model, its salt, its stream."""
    if not body:
        return Look('empty', None, None, b'')
    try:
        root = Parser(body).whole()
    except Bad:
        return Look('not_json', None, None, b'')
    if root.kind != 'object':
        return Look('not_object', None, None, b'')
    walk, reads = TOPS[api]
    top, stream = Fields(root, reads), Stream(body)
    node, model, salt = top.get('model'), None, None
    if node is not None and node.kind == 'string' and node.value and len(node.value) <= 256:
        model = node.value
    try:
        top.checked()
        if node is not None and node.kind == 'string' and node.value is None:
            raise Refused('bad_utf8')
        if top.get('cache_salt') is not None:
            salt = top.get('cache_salt')
            if salt.kind != 'string':
                raise Refused('bad_type')
            if salt.value is None:
                raise Refused('bad_utf8')
            salt = salt.value
        walk(stream, top)
    except Full:
        pass
    except Refused as refused:
        return Look(refused.args[0], model, salt, b'')
    whole = bytes(stream.out[:len(stream.out) // BLOCK * BLOCK][:BLOCK * MAX_KEYS])
    if model is None:
        return Look('no_model', None, salt, b'')
    return Look(None if whole else 'too_short', model, salt, whole)


def shared_blocks(a, b):
    """How many leading keys two readable bodies share."""
    if a.model != b.model or a.salt != b.salt:
        return 0
    n = 0
    while n < min(len(a.stream), len(b.stream)) and a.stream[n:n + BLOCK] == b.stream[n:n + BLOCK]:
        n += BLOCK
    return n // BLOCK
