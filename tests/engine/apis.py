"""The four APIs that have prompts, told apart: how turns of a talk become a request, and what of an answer a test looks at.

Turns are texts, the client's and the engine's by turns; the client's come first and last.
"""
TOOL = {'name': 'weather', 'description': 'The weather of a city', 'parameters': {
    'type': 'object', 'properties': {'city': {'type': 'string', 'enum': ['Bern', 'Oslo']}}, 'required': ['city'],
    'additionalProperties': False}}
CHANCE = {'temperature': 0.8}       # without it an untrained model often says nothing


def alternating(turns):
    return [{'role': 'assistant' if number % 2 else 'user', 'content': text} for number, text in enumerate(turns)]


class Chat:
    name, path, call, last_event = 'chat', '/v1/chat/completions', 'chat.completions.create', None

    def body(self, turns, tokens=8):
        return dict(CHANCE, model='llama', max_tokens=tokens, messages=alternating(turns))

    def streamed(self):
        return {'stream': True, 'stream_options': {'include_usage': True}}

    def text(self, value):
        return value['choices'][0]['message'].get('content') or ''

    def usage(self, value):
        return value['usage']

    def prompt_tokens(self, value):
        return self.usage(value)['prompt_tokens']

    def cached(self, value):
        return (self.usage(value).get('prompt_tokens_details') or {}).get('cached_tokens') or 0

    def whole(self, events):
        """The usage of a stream in the shape of an answer; its events are in their order."""
        assert events[-1]['choices'] == [] and events[0]['choices'][0]['delta']['role'] == 'assistant'
        assert [e['choices'][0].get('finish_reason') for e in events if e['choices'] and e['choices'][0].get('finish_reason')]
        assert len({event['id'] for event in events}) == 1
        return events[-1]


class Completions(Chat):
    name, path, call = 'completions', '/v1/completions', 'completions.create'

    def body(self, turns, tokens=8):
        # a letter after a point: no token spans two turns, so that a longer talk begins with the tokens of a shorter one
        return dict(CHANCE, model='llama', max_tokens=tokens, prompt=''.join('x%s.' % text for text in turns))

    def text(self, value):
        return value['choices'][0]['text']

    def whole(self, events):
        assert events[-1]['choices'] == [] and any(e['choices'][0].get('finish_reason') for e in events if e['choices'])
        assert len({event['id'] for event in events}) == 1
        return events[-1]


class Responses(Chat):
    name, path, call = 'responses', '/v1/responses', 'responses.create'

    def body(self, turns, tokens=8):
        return dict(CHANCE, model='llama', max_output_tokens=tokens, input=alternating(turns))

    def streamed(self):
        return {'stream': True}

    def text(self, value):
        return ''.join(part['text'] for item in value['output'] if item['type'] == 'message' for part in item['content'])

    def prompt_tokens(self, value):
        return value['usage']['input_tokens']

    def cached(self, value):
        return value['usage']['input_tokens_details']['cached_tokens']

    def whole(self, events):
        assert (events[0]['type'], events[-1]['type']) == ('response.created', 'response.completed')
        assert [event['sequence_number'] for event in events] == list(range(len(events)))
        return events[-1]['response']


class Messages(Chat):
    name, path, call = 'messages', '/v1/messages', 'messages.create'

    def body(self, turns, tokens=8):
        return {'model': 'llama', 'max_tokens': tokens, 'messages': alternating(turns)}

    def streamed(self):
        return {'stream': True}

    def text(self, value):
        return ''.join(part['text'] for part in value['content'] if part['type'] == 'text')

    def prompt_tokens(self, value):
        """In this API tokens read from the cache or put there are counted beside the others."""
        return value['usage']['input_tokens'] + self.cached(value) + (value['usage'].get('cache_creation_input_tokens') or 0)

    def cached(self, value):
        return value['usage'].get('cache_read_input_tokens') or 0

    def whole(self, events):
        kinds = [event['type'] for event in events]
        assert kinds[0] == 'message_start' and kinds[-2:] == ['message_delta', 'message_stop']
        return events[-2]


APIS = [Chat(), Completions(), Messages(), Responses()]
