// What several panels share.

import {post} from "../api.js";

/** Examples that set one value: {en: [text, ...], zh: [...]} as buttons. */
export function textExamples(texts, name = "text") {
  const examples = (list) => list.map((text) => ({label: text, values: {[name]: text}}));
  return Object.fromEntries(Object.entries(texts).map(([language, list]) => [language, examples(list)]));
}

/** One request for each chosen model, by default for all models of the panel. */
export function callEach(panel, names, path, bodyOf) {
  const chosen = names ?? panel.models.map((model) => model.name);
  return chosen.map((name) => ({path, body: {model: name, ...bodyOf(name)}}));
}

/** The request of a prediction by the entry of a menu. */
export function predictCall(panel, id, item) {
  const entry = panel.models.find((model) => model.id === id) ?? panel.models[0];
  const task = entry.taskName ? {task: entry.taskName} : {};
  return {path: "/predict", body: {model: entry.name, texts: [item], ...task}};
}

/** The answers to requests, each with the name of its model. */
export async function askEach(calls, signal) {
  const answers = await Promise.all(calls.map((call) => post(call.path, call.body, signal)));
  return answers.map((answer, index) => ({...answer, name: calls[index].body.model}));
}
