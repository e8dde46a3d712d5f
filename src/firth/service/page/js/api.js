// Requests to the server of this page, and nothing else.

import {t} from "./i18n.js";

let key = "";

/** An error whose message is one sentence for the visitor. */
export class ServerError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export function setKey(value) {
  key = value.trim();
}

export function hasKey() {
  return key !== "";
}

function headers() {
  const found = {"Content-Type": "application/json"};
  if (key) found.Authorization = `Bearer ${key}`;
  return found;
}

async function request(path, options) {
  let response;
  try {
    response = await fetch(path, {...options, headers: headers(), credentials: "omit", cache: "no-store"});
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError(t("error.network"), 0);
  }
  if (!response.ok) throw new ServerError(await sentence(response), response.status);
  return response;
}

async function sentence(response) {
  const text = await response.text();
  try {
    const answer = JSON.parse(text);
    const found = answer.error?.message ?? answer.error ?? answer.detail;
    if (typeof found === "string") return found;
  } catch {
    // Not an answer of the server itself, but of something before it.
  }
  return t("error.status", {status: response.status});
}

export async function get(path, signal) {
  return (await request(path, {signal})).json();
}

export async function post(path, body, signal) {
  return (await request(path, {method: "POST", body: JSON.stringify(body), signal})).json();
}

/** Posts and calls `onEvent` with the object of each server-sent event. */
export async function stream(path, body, signal, onEvent) {
  const response = await request(path, {method: "POST", body: JSON.stringify(body), signal});
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const data = line.startsWith("data:") ? line.slice(5).trim() : "";
      if (!data || data === "[DONE]") continue;
      const event = JSON.parse(data);
      if (event.error) throw new ServerError(event.error.message ?? event.error, 200);
      onEvent(event);
    }
  }
}
