// The official SDKs for JavaScript, asked from a test in Python: a JSON line in, a JSON line out, one call after the other.
//
//     {"sdk": "openai", "url": ".../v1", "call": ["responses", "create"], "args": [{...}]}
//     {"site": "east", "value": ...}    or    {"status": 404, "code": "...", "retry_after": "5", "message": "..."}
//
// A stream or a list of pages comes back as an array of all that it gave.
import readline from 'node:readline';
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';

const sdks = { anthropic: Anthropic, openai: OpenAI };
const clients = new Map();

function clientOf(sdk, url) {
  const name = sdk + ' ' + url;
  if (!clients.has(name))
    clients.set(name, new sdks[sdk]({ baseURL: url, apiKey: 'none', maxRetries: 0, timeout: 120000 }));
  return clients.get(name);
}

async function whole(value) {
  if (value === undefined || value === null) return null;
  if (typeof value[Symbol.asyncIterator] !== 'function') return value;
  const all = [];
  for await (const one of value) all.push(one);
  return all;
}

async function answer({ sdk, url, call, args }) {
  let target = clientOf(sdk, url);
  for (const name of call.slice(0, -1)) target = target[name];
  try {
    const { data, response } = await target[call[call.length - 1]](...args).withResponse();
    return { site: response.headers.get('x-grid-site') ?? response.headers.get('x-sim-site'), value: await whole(data) };
  } catch (error) {
    if (!(error instanceof sdks[sdk].APIError)) return { failure: String(error.stack) };
    const retryAfter = error.headers?.get('retry-after') ?? null;
    return { status: error.status ?? 0, code: error.code ?? null, retry_after: retryAfter, message: error.message };
  }
}

for await (const line of readline.createInterface({ input: process.stdin }))
  process.stdout.write(JSON.stringify(await answer(JSON.parse(line))) + '\n');
