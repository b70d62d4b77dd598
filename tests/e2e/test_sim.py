"""The simulated site, alone: is it the engine that the other end-to-end tests take it for?

Each test starts its own `grid-gateway sim-site` on a free port. The command is named by GRID_GATEWAY, or is the
release build's. Times are compared with each other or bounded from below by the set speeds, never hoped for.
"""

import asyncio
import json
import os
import pathlib
import resource
import select
import signal
import socket
import struct
import subprocess
import threading
import time

import httpx
import openai
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMAND = os.environ.get("GRID_GATEWAY", str(ROOT / "build" / "release" / "grid-gateway"))
MODEL = "small"
START_S = 20
WAIT_S = 30
STREAMS = 2000
# One message of so many bytes is so many tokens, plus the marks of the template.
BYTES_PER_TOKEN = 4
BLOCK_TOKENS = 16


class Site:
    """One running site and the calls that most tests make."""

    def __init__(self, *options):
        command = [COMMAND, "sim-site", "--listen", "127.0.0.1:0", "--model", MODEL, *map(str, options)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        ready, _, _ = select.select([self.process.stdout], [], [], START_S)
        line = self.process.stdout.readline() if ready else ""
        if not line.startswith("listening on "):
            self.process.kill()
            raise AssertionError(f"no site: {line!r} {self.process.communicate()[1]}")
        self.port = int(line.rsplit(":", 1)[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self.http = httpx.Client(base_url=self.url, timeout=WAIT_S)

    def close(self):
        self.http.close()
        self.process.send_signal(signal.SIGTERM)
        out, err = self.process.communicate(timeout=START_S)
        return self.process.returncode, out, err

    def openai(self):
        return openai.OpenAI(base_url=self.url + "/v1", api_key="none", max_retries=0, timeout=WAIT_S)

    def state(self):
        return self.http.get("/sim/state").json()

    def until(self, condition):
        """Waits until condition(state) holds and returns that state."""
        end = time.monotonic() + WAIT_S
        while True:
            state = self.state()
            if condition(state):
                return state
            assert time.monotonic() < end, f"never came true, last state {state}"
            time.sleep(0.005)

    def chat(self, messages, headers=None, **fields):
        body = {"model": MODEL, "messages": messages, **fields}
        return self.http.post("/v1/chat/completions", json=body, headers=headers)

    def metrics(self):
        values = {}
        for line in self.http.get("/metrics").text.splitlines():
            if line and not line.startswith("#"):
                series, value = line.rsplit(" ", 1)
                values[series] = float(value)
        return values


@pytest.fixture
def start():
    sites = []

    def one(*options):
        sites.append(Site(*options))
        return sites[-1]

    yield one
    for site in sites:
        code, out, err = site.close()
        assert (code, out, err) == (0, "", ""), "it ends in order and logs nothing"


def user(text):
    return [{"role": "user", "content": text}]


def text_of_tokens(tokens, tag="x"):
    """A text of so many tokens whose blocks no other tag's text shares."""
    size = tokens * BYTES_PER_TOKEN
    return (tag + " ").ljust(size // 2, tag[-1]).ljust(size, "z")


def cached(answer):
    return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def open_stream(site, messages, max_tokens):
    """A raw streaming request; returns its socket once the status line has come."""
    body = json.dumps({"model": MODEL, "messages": messages, "max_tokens": max_tokens, "stream": True}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    connection = socket.create_connection(("127.0.0.1", site.port), timeout=WAIT_S)
    connection.sendall(head + body)
    assert connection.recv(12) == b"HTTP/1.1 200"
    return connection


# ---- the prefix cache ----


def test_cached_tokens_grow_over_turns(start):
    site = start("--prefill-tps", 1e7, "--decode-tps", 1e5)
    messages = [{"role": "system", "content": text_of_tokens(400, "s")}]
    hits = []
    for turn in range(6):
        messages.append({"role": "user", "content": text_of_tokens(100, f"turn{turn}")})
        answer = site.chat(messages)
        usage = answer.json()["usage"]
        hits.append(cached(answer))
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        assert hits[-1] < usage["prompt_tokens"] and hits[-1] % BLOCK_TOKENS == 0
        messages.append(answer.json()["choices"][0]["message"])
    assert hits[0] == 0
    assert hits[1] >= 400 and all(later >= earlier + 96 for earlier, later in zip(hits[1:], hits[2:])), hits
    metrics = site.metrics()
    labels = f'{{engine="0",model_name="{MODEL}"}}'
    assert metrics["vllm:prefix_cache_hits_total" + labels] == sum(hits)
    assert metrics["vllm:prefix_cache_queries_total" + labels] == site.state()["prompt_tokens"]


def test_a_known_prompt_computes_at_least_one_token(start):
    site = start("--prefill-tps", 1e7, "--decode-tps", 1e5)
    tokens = list(range(4 * BLOCK_TOKENS - 2))  # with the two marks before it exactly four blocks
    for expected in (0, 3 * BLOCK_TOKENS):
        answer = site.http.post("/v1/completions", json={"model": MODEL, "prompt": tokens})
        assert answer.json()["usage"]["prompt_tokens"] == 4 * BLOCK_TOKENS
        assert cached(answer) == expected


def test_one_text_part_is_a_string_and_salt_model_tools_part_the_cache(start):
    site = start("--prefill-tps", 1e7, "--decode-tps", 1e5, "--model", "other")
    text = text_of_tokens(200)
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    assert cached(site.chat(user(text))) == 0
    known = cached(site.chat(user(text)))
    assert known >= 192
    assert cached(site.chat(user([{"type": "text", "text": text}]))) == known
    assert cached(site.chat(user(text), cache_salt="a")) == 0
    assert cached(site.chat(user(text), cache_salt="a")) == known
    assert cached(site.chat(user(text), tools=[tool])) == 0
    assert cached(site.chat(user(text), model="other")) == 0
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    assert cached(site.chat(user([image, {"type": "text", "text": text}]))) == 0


def test_the_least_recently_used_prompt_is_evicted_from_its_end(start):
    site = start("--prefill-tps", 1e7, "--decode-tps", 1e5, "--cache-blocks", 20)
    first, second = user(text_of_tokens(160, "a")), user(text_of_tokens(160, "b"))
    full = [site.chat(first), site.chat(second), site.chat(first), site.chat(second)]
    assert [cached(answer) > 0 for answer in full] == [False, False, True, True]
    site.chat(user(text_of_tokens(80, "c")))
    assert site.state()["cached_blocks"] == 20
    after_second, after_first = cached(site.chat(second)), cached(site.chat(first))
    assert after_second == cached(full[3]), "the more recently used prompt stays"
    assert 0 < after_first < cached(full[2]), "the other one lost its end and kept its start"


def test_blocks_count_only_once_their_prefill_has_ended(start):
    site = start("--prefill-tps", 2000, "--decode-tps", 1e5)
    text = text_of_tokens(1000)
    first = open_stream(site, user(text), 1)
    site.until(lambda state: state["running"] == 1)
    assert site.state()["cached_blocks"] == 0
    answer = site.chat(user(text))  # waits its turn, then finds what the first one computed
    assert cached(answer) >= 990
    first.close()


def test_reset_forgets(start):
    site = start("--prefill-tps", 1e7, "--decode-tps", 1e5)
    before = site.metrics()["process_start_time_seconds"]
    site.chat(user(text_of_tokens(200)))
    state = site.http.post("/sim/reset").json()
    assert (state["cached_blocks"], state["requests"], state["prompt_tokens"]) == (0, 0, 0)
    assert cached(site.chat(user(text_of_tokens(200)))) == 0
    assert site.metrics()["process_start_time_seconds"] > before


# ---- queue and time ----


def test_queue_behind_max_num_seqs(start):
    site = start("--max-num-seqs", 2, "--prefill-tps", 1e7, "--decode-tps", 20)
    streams = [open_stream(site, user(f"stream {i}"), 100000) for i in range(5)]
    state = site.until(lambda state: state["running"] == 2 and state["waiting"] == 3)
    site.http.post("/sim/load", json={"waiting": 4.5})
    metrics = site.metrics()
    assert metrics[f'vllm:num_requests_waiting{{engine="0",model_name="{MODEL}"}}'] == 7.5
    assert metrics[f'vllm:num_requests_running{{engine="0",model_name="{MODEL}"}}'] == 2
    assert 0 < metrics[f'vllm:kv_cache_usage_perc{{engine="0",model_name="{MODEL}"}}'] <= 1
    site.http.post("/sim/load", json={"waiting": 0})
    streams.pop(0).close()
    site.until(lambda state: state["running"] == 2 and state["waiting"] == 2)
    streams.pop().close()  # the last in the queue: nobody moves up
    site.until(lambda state: state["running"] == 2 and state["waiting"] == 1)
    for stream in streams:
        stream.close()
    state = site.until(lambda state: state["running"] == 0 and state["waiting"] == 0)
    assert state["aborted"] == 5


def test_the_queue_is_first_in_first_out(start):
    site = start("--max-num-seqs", 1, "--prefill-tps", 1e7, "--decode-tps", 100)
    order, threads = [], []

    def ask(number):
        site.chat(user(f"number {number}"), max_tokens=10)
        order.append(number)

    for number in range(4):
        threads.append(threading.Thread(target=ask, args=(number,)))
        threads[-1].start()
        site.until(lambda state, seen=number + 1: state["received"] == seen)
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3]


def first_event_s(site, messages):
    began = time.monotonic()
    with site.openai() as client:
        stream = client.chat.completions.create(model=MODEL, messages=messages, stream=True, max_tokens=1)
        next(iter(stream))
        return time.monotonic() - began


def test_time_to_first_token_follows_the_tokens_not_cached(start):
    site = start("--prefill-tps", 4000)
    cold = first_event_s(site, user(text_of_tokens(2400)))
    site.until(lambda state: state["running"] == 0)
    warm = first_event_s(site, user(text_of_tokens(2400)))
    assert cold >= 2400 / 4000
    assert warm < cold / 2


def test_prefills_take_turns(start):
    site = start("--prefill-tps", 4000, "--decode-tps", 1e5)
    began = time.monotonic()
    streams = [open_stream(site, user(text_of_tokens(800, f"p{i}")), 1) for i in range(3)]
    site.until(lambda state: state["requests"] == 3)
    assert time.monotonic() - began >= 3 * 800 / 4000
    for stream in streams:
        stream.close()


def test_tokens_are_spaced_in_time(start):
    site = start("--prefill-tps", 1e7, "--decode-tps", 50)
    times = []
    with site.openai() as client:
        for _ in client.chat.completions.create(model=MODEL, messages=user("hello"), stream=True, max_tokens=21):
            times.append(time.monotonic())
    assert times[-1] - times[0] >= 0.9 * 20 / 50
    assert len({round(at, 3) for at in times}) > 10, "they came in a lump"


# ---- the API ----


def test_tokens_are_sent_as_they_come_on_a_used_connection(start):
    """A site that waits for the acknowledgement of one token before it sends the next bundles them by 40 ms."""
    site = start("--decode-tps", 200)
    body = json.dumps({"model": MODEL, "stream": True, "max_tokens": 8, "messages": [{"role": "user", "content": "a"}]})
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", site.port), WAIT_S) as s:
        for turn in range(3):
            s.sendall((head + body).encode())
            pieces = []
            while not b"".join(pieces).endswith(b"0\r\n\r\n"):
                pieces.append(s.recv(65536))
                assert pieces[-1]
            assert sum(b'"content"' in p for p in pieces) >= 6, (turn, pieces)


def test_openai_sdk_reads_chat_streams(start):
    site = start("--name", "site-a", "--decode-tps", 1000)
    with site.openai() as client:
        plain = client.chat.completions.create(model=MODEL, messages=user("hello"), max_completion_tokens=7)
        stream = client.chat.completions.create(
            model=MODEL, messages=user("hello"), max_tokens=7, stream=True, stream_options={"include_usage": True}
        )
        chunks = list(stream)
        assert [model.id for model in client.models.list()] == [MODEL]
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"} and len({c.id for c in chunks}) == 1
    assert chunks[0].choices[0].delta.role == "assistant" and chunks[0].choices[0].delta.content == ""
    text = "".join(chunk.choices[0].delta.content for chunk in chunks[:-1])
    assert text == plain.choices[0].message.content and len(text.split()) == 7
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [None] * 7 + ["length"]
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 7
    assert plain.usage.completion_tokens == 7 and plain.choices[0].finish_reason == "length"
    assert stream.response.headers["x-sim-site"] == "site-a"


def test_openai_sdk_reads_completions(start):
    site = start("--decode-tps", 1000)
    with site.openai() as client:
        plain = client.completions.create(model=MODEL, prompt="once")
        chunks = list(client.completions.create(model=MODEL, prompt="once", stream=True))
    assert plain.object == "text_completion" and plain.choices[0].finish_reason == "stop"
    assert plain.usage.completion_tokens == 32
    assert "".join(chunk.choices[0].text for chunk in chunks) == plain.choices[0].text
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_a_stream_ends_with_done_and_the_connection_serves_on(start):
    site = start("--decode-tps", 1000)
    for _ in range(3):
        answer = site.chat(user("hello"), stream=True, max_tokens=2)
        events = answer.text.split("\n\n")
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert events[-2:] == ["data: [DONE]", ""] and all(event.startswith("data: ") for event in events[:-1])


def test_pipelined_requests_are_answered_in_turn(start):
    site = start("--decode-tps", 200)
    body = json.dumps({"model": MODEL, "messages": user("hello"), "max_tokens": 5}).encode()
    one = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
    last = b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", site.port), timeout=WAIT_S) as connection:
        connection.sendall(one * 3 + last)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.count(b"HTTP/1.1 200") == 4 and answer.count(b'"chat.completion"') == 3


@pytest.mark.parametrize(
    "path, body, status",
    [
        ("/v1/chat/completions", b'{"model":', 400),
        ("/v1/chat/completions", b"", 400),
        ("/v1/chat/completions", b"[]", 400),
        ("/v1/chat/completions", b'{"messages":[]}', 400),
        ("/v1/chat/completions", b'{"messages":[{"content":"secretword"}]}', 400),
        ("/v1/chat/completions", b'{"messages":[{"role":"user","content":"secretword"}],"max_tokens":0}', 400),
        ("/v1/chat/completions", b'{"model":"none","messages":[{"role":"user","content":"secretword"}]}', 404),
        ("/v1/completions", b'{"prompt":["secretword","b"]}', 400),
        ("/v1/completions", b'{"prompt":secretword}', 400),
        ("/v1/nothing", b"{}", 404),
        ("/v1/models", b"{}", 405),
    ],
)
def test_refusals_are_error_objects_without_prompt_text(start, path, body, status):
    site = start()
    answer = site.http.post(path, content=body)
    assert answer.status_code == status
    assert answer.json()["error"]["code"] == status and answer.json()["error"]["message"]
    assert "secretword" not in answer.text
    assert site.http.get("/health").status_code == 200
    assert site.http.get("/none").status_code == 404


def test_unknown_model_is_the_sdks_not_found(start):
    with start().openai() as client, pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="none", messages=user("hello"))


# ---- echo ----


@pytest.mark.parametrize("size", [0, 1, 1024 * 1024 + 1, 64 * 1024 * 1024])
@pytest.mark.parametrize("chunked", [False, True])
def test_echo_returns_every_byte(start, size, chunked):
    site = start()
    body = os.urandom(size)
    pieces = (body[at : at + 65536] for at in range(0, size, 65536))
    headers = {"x-sim-echo": "1", "x-some": "Value"}
    answer = site.http.post("/any/path", content=pieces if chunked else body, headers=headers)
    assert answer.status_code == 200 and answer.content == body
    assert answer.headers["x-sim-body-bytes"] == str(size)
    seen = json.loads(answer.headers["x-sim-headers"])
    assert seen["x-some"] == "Value" and ("transfer-encoding" in seen) == chunked


@pytest.mark.parametrize("body, digest", [(b"", "ef46db3751d8e999"), (b"abc", "44bc2cf5ad770999")])
def test_the_body_hash_is_xxh64(start, body, digest):
    answer = start().http.post("/v1/completions", content=body)
    assert answer.headers["x-sim-body-xxh64"] == digest


def test_echoed_headers_are_bounded(start):
    headers = {"x-sim-echo": "1", "x-a": "a" * 3000, "x-b": "b" * 3000, "x-c": "c"}
    text = start().http.post("/", content=b"", headers=headers).headers["x-sim-headers"]
    seen = json.loads(text)
    assert len(text) <= 4096 and seen["x-c"] == "c" and ("x-a" in seen) != ("x-b" in seen)


# ---- what is stored ----

EVENTS = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    *["response.output_text.delta"] * 3,
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.completed",
]


def respond(site, text, **fields):
    return site.http.post("/v1/responses", json={"model": MODEL, "input": text, **fields})


def missing(answer):
    """A 404 with an error object that names nothing but the id."""
    error = answer.json()["error"]
    return answer.status_code == 404 and error["message"].endswith("not found.") and error["code"] == 404


def test_a_response_stream_has_all_events_and_is_the_stored_answer(start):
    site = start("--decode-tps", 1000)
    with site.openai() as client:
        events = list(client.responses.create(model=MODEL, input="hello", stream=True, max_output_tokens=3))
        last = events[-1].response
        assert [event.type for event in events] == EVENTS
        assert [event.sequence_number for event in events] == list(range(len(EVENTS)))
        assert "".join(event.delta for event in events[4:7]) == events[7].text == last.output_text
        assert len({event.response.id for event in (events[0], events[1], events[-1])}) == 1
        assert (last.status, last.incomplete_details.reason) == ("incomplete", "max_output_tokens")
        assert client.responses.retrieve(last.id).model_dump() == last.model_dump()
        replay = client.responses.retrieve(last.id, stream=True, starting_after=8)
        assert [event.sequence_number for event in replay] == [9, 10]
    text = respond(site, "hello", stream=True).text.split("\n\n")
    assert all(event.startswith("event: response.") and "\ndata: {" in event for event in text[:-1]) and text[-1] == ""


def test_ten_turns_by_previous_response_id_hit_the_cache_with_their_whole_history(start):
    site = start("--prefill-tps", 1e7, "--decode-tps", 1e5)
    previous, before = None, 0
    for turn in range(10):
        answer = respond(site, text_of_tokens(100, f"turn{turn}"), previous_response_id=previous).json()
        usage = answer["usage"]
        assert answer["status"] == "completed" and answer["previous_response_id"] == previous
        assert usage["input_tokens"] > before + 100 and usage["input_tokens_details"]["cached_tokens"] >= before - 16
        previous, before = answer["id"], usage["input_tokens"]
    assert site.http.delete(f"/v1/responses/{previous}").json() == {"id": previous, "object": "response", "deleted": True}
    assert missing(site.http.get(f"/v1/responses/{previous}"))
    assert missing(respond(site, "more", previous_response_id=previous))
    assert missing(site.http.delete(f"/v1/responses/{previous}"))


def test_a_talk_by_ids_and_one_by_messages_are_one_prompt(start):
    site = start("--prefill-tps", 1e7, "--decode-tps", 1e5)
    first = respond(site, text_of_tokens(100), instructions="be brief").json()
    second = respond(site, "more", instructions="be brief", previous_response_id=first["id"]).json()
    said = first["output"][0]["content"][0]["text"]
    items = [*user(text_of_tokens(100)), {"role": "assistant", "content": said}, *user("more")]
    whole = respond(site, items, instructions="be brief").json()
    assert whole["usage"]["input_tokens"] == second["usage"]["input_tokens"]
    assert whole["usage"]["input_tokens_details"]["cached_tokens"] // 16 == (whole["usage"]["input_tokens"] - 1) // 16


def test_store_false_and_a_site_without_a_store_keep_nothing(start):
    site, off = start("--decode-tps", 1e5), start("--decode-tps", 1e5, "--store-count", 0)
    for answer, where in ((respond(site, "x", store=False), site), (respond(off, "x", store=True), off)):
        assert answer.status_code == 200 and answer.json()["id"].startswith("resp_")
        assert missing(where.http.get("/v1/responses/" + answer.json()["id"]))
    assert respond(site, "x", store=False, background=True).status_code == 400
    assert respond(off, "x", background=True).status_code == 400


def test_background_responses_run_on_end_and_can_be_cancelled(start):
    site = start("--max-num-seqs", 1, "--decode-tps", 200)
    long, queued = (respond(site, "x", background=True, max_output_tokens=100000).json() for _ in range(2))
    assert long["status"] == queued["status"] == "queued" and long["output"] == []
    site.until(lambda state: state["running"] == 1 and state["waiting"] == 1)
    seen = lambda one: site.http.get("/v1/responses/" + one["id"]).json()["status"]
    assert (seen(long), seen(queued)) == ("in_progress", "queued")
    assert site.http.post(f"/v1/responses/{queued['id']}/cancel").json()["status"] == "cancelled"
    assert (seen(long), seen(queued)) == ("in_progress", "cancelled")
    with site.http.stream("GET", f"/v1/responses/{long['id']}?stream=true&starting_after=1") as stream:
        lines = stream.iter_lines()
        assert next(lines) == "event: response.output_item.added"
        site.http.post(f"/v1/responses/{long['id']}/cancel").raise_for_status()
        rest = list(lines)
    assert rest and "event: response.completed" not in rest, "a cancelled one ends without"
    site.until(lambda state: state["running"] == 0 and state["aborted"] == 2)
    again = site.http.post(f"/v1/responses/{long['id']}/cancel")
    assert again.status_code == 400 and again.json()["error"]["message"] == "Cannot cancel a synchronous response."
    short = respond(site, "x", background=True, stream=True, max_output_tokens=3).text
    assert '"status":"queued"' in short and "event: response.completed" in short


def test_a_foreground_response_ends_with_its_client_a_background_one_does_not(start):
    site = start("--decode-tps", 50)
    for background in (False, True):
        fields = {"model": MODEL, "input": "x", "stream": True, "background": background, "max_output_tokens": 1000}
        with site.http.stream("POST", "/v1/responses", json=fields) as answer:
            line = next(line for line in answer.iter_lines() if line.startswith("data: "))
        name = json.loads(line[6:])["response"]["id"]
        if background:
            site.until(lambda state: state["running"] == 1 and state["generation_tokens"] > 0)
            assert site.http.get("/v1/responses/" + name).json()["status"] == "in_progress"
        else:
            site.until(lambda state: state["running"] == 0 and state["aborted"] == 1)
            assert missing(site.http.get("/v1/responses/" + name))
    assert site.http.delete("/v1/responses/" + name).status_code == 200
    site.until(lambda state: state["running"] == 0 and state["aborted"] == 2)


def test_the_store_is_bounded_by_count_and_by_bytes(start):
    few, small = start("--decode-tps", 1e5, "--store-count", 3), start("--decode-tps", 1e5, "--store-bytes", 20000)
    ids = [respond(few, f"number {number}").json()["id"] for number in range(5)]
    assert [few.http.get("/v1/responses/" + one).status_code for one in ids] == [404, 404, 200, 200, 200]
    ids = [respond(small, "z" * 8000).json()["id"] for _ in range(3)]
    assert [small.http.get("/v1/responses/" + one).status_code for one in ids] == [404, 200, 200]
    assert missing(small.http.get("/v1/responses/" + respond(small, "z" * 30000).json()["id"]))


def test_a_running_background_response_that_the_store_lets_go_leaves_the_engine(start):
    site = start("--decode-tps", 50, "--store-count", 1)
    first = respond(site, "x", background=True, max_output_tokens=100000).json()
    site.until(lambda state: state["running"] == 1)
    respond(site, "y", max_output_tokens=1)
    site.until(lambda state: state["running"] == 0 and state["aborted"] == 1)
    assert missing(site.http.get("/v1/responses/" + first["id"]))


def test_ids_of_two_sites_differ_and_a_caller_may_choose_one(start):
    sites = [start("--decode-tps", 1e5, "--name", name) for name in ("east", "west")]
    ids = [respond(site, "x").json()["id"] for site in sites for _ in range(3)]
    assert len(set(ids)) == 6 and all(len(one) == len("resp_") + 32 and "east" not in one for one in ids)
    for site in sites:
        assert respond(site, "x", request_id="resp_mine").json()["id"] == "resp_mine"
        assert site.http.get("/v1/responses/resp_mine").status_code == 200
    assert respond(sites[0], "x", request_id="../etc").json()["id"] != "../etc"


def test_input_items_are_listed_in_pages(start):
    site = start("--decode-tps", 1e5)
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "1"}
    name = respond(site, [*user("one"), call, output, *user("two")]).json()["id"]
    path = f"/v1/responses/{name}/input_items"
    page = site.http.get(path, params={"limit": 3, "order": "asc"}).json()
    assert [item["type"] for item in page["data"]] == ["message", "function_call", "function_call_output"]
    assert page["data"][0]["content"] == [{"type": "input_text", "text": "one"}]
    assert (page["has_more"], page["first_id"]) == (True, page["data"][0]["id"])
    rest = site.http.get(path, params={"order": "asc", "after": page["last_id"]}).json()
    assert [item["content"][0]["text"] for item in rest["data"]] == ["two"] and not rest["has_more"]
    assert site.http.get(path).json()["data"] == [*rest["data"], *reversed(page["data"])], "the newest first"
    assert site.http.get(path, params={"limit": 0}).status_code == 400


def test_conversations_grow_by_items_and_by_responses(start):
    site = start("--prefill-tps", 1e7, "--decode-tps", 1e5)
    with site.openai() as client:
        talk = client.conversations.create(metadata={"a": "b"}, items=user(text_of_tokens(100)))
        assert talk.id.startswith("conv_") and client.conversations.retrieve(talk.id).metadata == {"a": "b"}
        first = client.responses.create(model=MODEL, input="one", conversation=talk.id)
        second = client.responses.create(model=MODEL, input="two", conversation={"id": talk.id})
        assert first.conversation.id == second.conversation.id == talk.id
        assert second.usage.input_tokens_details.cached_tokens >= first.usage.input_tokens - 16
        added = client.conversations.items.create(talk.id, items=user("three")).data[0]
        texts = [i.content[0].text for i in client.conversations.items.list(talk.id, order="asc", limit=2)]
        assert texts[1:] == ["one", first.output_text, "two", second.output_text, "three"]
        assert client.conversations.items.retrieve(added.id, conversation_id=talk.id).content[0].text == "three"
        client.conversations.items.delete(added.id, conversation_id=talk.id)
        with pytest.raises(openai.NotFoundError):
            client.conversations.items.retrieve(added.id, conversation_id=talk.id)
        assert client.conversations.update(talk.id, metadata={"c": "d"}).metadata == {"c": "d"}
        assert client.conversations.delete(talk.id).deleted
        with pytest.raises(openai.NotFoundError):
            client.responses.create(model=MODEL, input="four", conversation=talk.id)
    assert missing(site.http.get("/v1/conversations/" + talk.id))
    both = {"conversation": talk.id, "previous_response_id": first.id}
    assert respond(site, "x", **both).status_code == 400


def test_compact_and_input_tokens_keep_nothing(start):
    site = start("--prefill-tps", 1e7, "--decode-tps", 1e5)
    with site.openai() as client:
        first = client.responses.create(model=MODEL, input=text_of_tokens(100))
        compacted = client.responses.compact(model=MODEL, previous_response_id=first.id)
        assert [item.type for item in compacted.output] == ["message", "compaction"]
        counted = client.responses.input_tokens.count(model=MODEL, input="more", previous_response_id=first.id)
        assert counted.input_tokens > first.usage.total_tokens - first.usage.output_tokens
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(compacted.id)


@pytest.mark.parametrize(
    "body, param",
    [([], None), ({}, "input"), ({"input": 1}, "input"), ({"input": [{"content": "x"}]}, "input"), ({"input": [1]}, "input"),
     ({"input": "x", "max_output_tokens": 0}, "max_output_tokens"), ({"input": "x", "model": 1}, "model")],
)
def test_wrong_response_bodies_are_refused(start, body, param):
    answer = start().http.post("/v1/responses", json=body)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == param


def test_paths_and_methods_of_what_is_stored(start):
    site = start()
    for method, path, status in [
        ("GET", "/v1/responses", 405), ("GET", "/v1/responses/", 404), ("PUT", "/v1/responses/resp_x", 405),
        ("GET", "/v1/responses/resp_x/cancel", 405), ("GET", "/v1/responses/resp_x/other", 404),
        ("GET", "/v1/responsesx", 404), ("GET", "/v1/conversations", 405), ("PUT", "/v1/conversations/conv_x", 405),
        ("GET", "/v1/conversations/conv_x/items/", 404), ("GET", "/v1/conversations/conv_x/items/a/b", 404),
        ("GET", "/v1/conversations/resp_x", 404), ("GET", "/v1/responses/" + "x" * 5000, 404),
    ]:
        answer = site.http.request(method, path)
        assert answer.status_code == status and answer.json()["error"]["code"] == status, (method, path)


# ---- failures ----


def test_set_status_applies_so_many_times(start):
    site = start("--decode-tps", 1e5)
    fault = {"status": 503, "body": {"error": {"message": "busy"}}, "retry_after": 7, "times": 2}
    assert site.http.post("/sim/faults", json=fault).status_code == 200
    for _ in range(2):
        answer = site.chat(user("hello"))
        assert (answer.status_code, answer.json(), answer.headers["retry-after"]) == (503, fault["body"], "7")
    assert site.chat(user("hello")).status_code == 200
    assert site.state()["requests"] == 1 and site.state()["received"] == 3


def test_faults_stay_until_cleared_and_can_name_a_path(start):
    site = start("--decode-tps", 1e5)
    site.http.post("/sim/faults", json={"status": 500, "path": "/metrics"})
    assert [site.http.get("/metrics").status_code for _ in range(3)] == [500] * 3
    assert site.chat(user("hello")).status_code == 200
    site.http.delete("/sim/faults")
    assert site.http.get("/metrics").status_code == 200
    for wrong in ({"status": 99}, {"times": -1}, {"reset": 1}, [], {"retry_after": "a\r\nb: c"}):
        assert site.http.post("/sim/faults", json=wrong).status_code == 400, wrong


def test_header_faults(start):
    site = start("--decode-tps", 1000)
    answer = site.chat(user("hello"), headers={"x-sim-fault": "status=429, retry_after=3"})
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "3")
    assert answer.json()["error"]["code"] == 429
    began = time.monotonic()
    assert site.chat(user("hello"), headers={"x-sim-fault": "delay=300"}).status_code == 200
    assert time.monotonic() - began >= 0.3
    assert site.chat(user("hello"), headers={"x-sim-fault": "nonsense"}).status_code == 400
    with pytest.raises((httpx.ReadError, httpx.WriteError)) as caught:
        site.chat(user("hello"), headers={"x-sim-fault": "reset"})
    assert "reset by peer" in str(caught.value)
    assert site.chat(user("hello")).status_code == 200


@pytest.mark.parametrize("events", [0, 1, 3])
def test_drop_in_the_middle_of_a_stream(start, events):
    site = start("--decode-tps", 1000)
    site.http.post("/sim/faults", json={"drop_after_events": events, "times": 1})
    body = {"model": MODEL, "messages": user("hello"), "stream": True}
    lines = []
    with pytest.raises(httpx.ReadError) as caught:
        with site.http.stream("POST", "/v1/chat/completions", json=body) as answer:
            assert answer.status_code == 200
            lines.extend(line for line in answer.iter_lines() if line)
    assert "reset by peer" in str(caught.value)
    assert len(lines) == events
    site.until(lambda state: state["running"] == 0 and state["aborted"] == 1)


@pytest.mark.parametrize("stage", ["queued", "prefill", "decode", "delayed", "plain"])
def test_a_client_that_leaves_frees_its_place(start, stage):
    site = start("--max-num-seqs", 1, "--prefill-tps", 1000, "--decode-tps", 10)
    other = open_stream(site, user("other"), 100000) if stage == "queued" else None
    if other:
        site.until(lambda state: state["running"] == 1)
    fields = {"model": MODEL, "messages": user("hello" * (4000 if stage == "prefill" else 1)), "max_tokens": 100000}
    body = json.dumps({**fields, "stream": stage not in ("plain", "delayed")}).encode()
    fault = "x-sim-fault: delay=600000\r\n" if stage == "delayed" else ""
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n{fault}content-length: {len(body)}\r\n\r\n"
    connection = socket.create_connection(("127.0.0.1", site.port))
    connection.sendall(head.encode() + body)
    before = site.until(lambda state: state["received"] == (2 if other else 1))
    if stage == "queued":
        assert before["waiting"] == 1
    elif stage in ("decode", "plain"):
        before = site.until(lambda state: state["generation_tokens"] > 0)
    if stage == "prefill":
        assert before["running"] == 1 and before["generation_tokens"] == 0
    if stage == "decode":  # a reset instead of an orderly end
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    if other:
        site.until(lambda state: state["waiting"] == 0 and state["running"] == 1)
        other.close()
    site.until(lambda state: state["running"] == 0 and state["waiting"] == 0)
    assert site.chat(user("next"), max_tokens=1).status_code == 200


# ---- many streams ----


async def one_stream(port, number):
    body = json.dumps({"model": MODEL, "messages": user(f"stream {number}"), "max_tokens": 8, "stream": True}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head.encode() + body)
    answer = await reader.read()
    writer.close()
    return answer.startswith(b"HTTP/1.1 200") and answer.count(b"data: ") == 10 and b"data: [DONE]" in answer


async def all_streams(site):
    tasks = [asyncio.ensure_future(one_stream(site.port, number)) for number in range(STREAMS)]
    most, end = 0, time.monotonic() + 4 * WAIT_S
    while not all(task.done() for task in tasks):
        assert time.monotonic() < end
        most = max(most, (await asyncio.to_thread(site.state))["running"])
        await asyncio.sleep(0.05)
    return most, sum(task.result() for task in tasks)


def test_two_thousand_open_streams(start):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = STREAMS + 256
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"needs {wanted} open files, the limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    site = start("--max-num-seqs", STREAMS, "--prefill-tps", 1e9, "--decode-tps", 1)
    most, whole = asyncio.run(all_streams(site))
    assert whole == STREAMS
    assert most == STREAMS, f"only {most} were open at once"


# ---- the command ----


@pytest.mark.parametrize(
    "options",
    [["--nonsense"], ["extra"], ["--decode-tps", "0"], ["--max-num-seqs", "x"], ["--listen", "nowhere"], ["--name", ""]],
)
def test_wrong_usage_is_status_2(options):
    done = subprocess.run([COMMAND, "sim-site", *options], capture_output=True, text=True, timeout=START_S, check=False)
    assert done.returncode == 2 and "--help" in done.stderr and done.stdout == ""


def test_help_and_a_taken_port(start):
    done = subprocess.run([COMMAND, "sim-site", "--help"], capture_output=True, text=True, timeout=START_S, check=False)
    assert done.returncode == 0 and "--prefill-tps" in done.stdout and done.stderr == ""
    taken = ["--listen", f"127.0.0.1:{start().port}"]
    done = subprocess.run([COMMAND, "sim-site", *taken], capture_output=True, text=True, timeout=START_S, check=False)
    assert done.returncode == 1 and "cannot bind" in done.stderr


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_signals_end_it_with_status_0_in_the_midst_of_work(name):
    site = Site("--max-num-seqs", 1)
    streams = [open_stream(site, user("hello"), 100000) for _ in range(3)]
    site.until(lambda state: state["running"] == 1 and state["waiting"] == 2)
    site.process.send_signal(getattr(signal, name))
    _, err = site.process.communicate(timeout=START_S)
    assert site.process.returncode == 0 and err == ""
    for stream in streams:
        stream.close()
    site.http.close()
