// Asks the server. What it refuses is an `ApiError` with the server's own code and sentence.

import { answered } from "./connection.js";

const BASE = "/api/v1";

class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    Object.assign(this, { status, code });
  }
}

export function get(path, query = {}, signal) {
  return ask(address(path, query), { signal });
}

export function post(path, body = {}) {
  return ask(address(path), {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
}

// The address of something of the API; what is absent or empty is left out of the query.
export function address(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value != null && value !== "" && value !== false);
  const written = new URLSearchParams(given.map(([key, value]) => [key, value === true ? "1" : value])).toString();
  return `${BASE}${path}${written && `?${written}`}`;
}

export function runPath(id, rest = "") {
  return `/runs/${encodeURIComponent(id)}${rest}`;
}

async function ask(url, options) {
  let answer;
  try {
    answer = await fetch(url, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    answered(0);
    throw new ApiError(0, "unreachable", "The server cannot be reached. Is `retinue serve` still running?");
  }
  answered(answer.status);
  const body = await answer.json().catch(() => null);
  if (answer.ok && body) return body;
  const { code, message } = body?.error ?? {};
  throw new ApiError(
    answer.status,
    code ?? "failed",
    message ?? `The server answered ${answer.status} without a reason.`,
  );
}
