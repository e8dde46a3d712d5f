// What several panels share.

import {post, ServerError} from "../api.js";
import {h} from "../dom.js";

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

/**
 * The answers to requests, each with the name of its model, and the errors of models that cannot answer.
 * If none can, that is an error of the panel.
 */
export async function askEach(calls, signal) {
  const failed = [];
  const answers = await Promise.all(calls.map(async ({path, body}) => {
    try {
      return {...(await post(path, body, signal)), name: body.model};
    } catch (error) {
      if (!(error instanceof ServerError) || failed.push({name: body.model, error}) === calls.length) throw error;
      return null;
    }
  }));
  return {models: answers.filter(Boolean), failed};
}

/** The errors of single models. */
export function failures(failed) {
  return failed.map(({name, error}) => h("p", {class: "error", role: "alert"}, `${name}: ${error.message}`));
}
