// Requests to the server. A refused request throws an `ApiError` with the server's code and message.

import { noteResponse } from "./connection.js";

const BASE = "/api/v1";

class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    Object.assign(this, { status, code });
  }
}

export function get(path, query = {}, signal) {
  return request(address(path, query), { signal });
}

export function post(path, body = {}) {
  return request(address(path), {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
}

// Returns the URL of an API resource; absent and empty values are left out of the query.
export function address(path, query = {}) {
  const entries = Object.entries(query).filter(([, value]) => value != null && value !== "" && value !== false);
  const search = new URLSearchParams(entries.map(([key, value]) => [key, value === true ? "1" : value])).toString();
  return `${BASE}${path}${search && `?${search}`}`;
}

export function runPath(id, rest = "") {
  return `/runs/${encodeURIComponent(id)}${rest}`;
}

async function request(url, options) {
  let answer;
  try {
    answer = await fetch(url, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    noteResponse(0);
    throw new ApiError(0, "unreachable", "The server cannot be reached. Is `retinue serve` still running?");
  }
  noteResponse(answer.status);
  const body = await answer.json().catch(() => null);
  if (answer.ok && body) return body;
  const { code, message } = body?.error ?? {};
  throw new ApiError(
    answer.status,
    code ?? "failed",
    message ?? `The server answered ${answer.status} without a reason.`,
  );
}
