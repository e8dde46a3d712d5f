// Text written by a model, token by token, until it ends or is stopped.

import {stream} from "../api.js";
import {h, languageOf} from "../dom.js";
import {language, t} from "../i18n.js";
import {fieldRow, input, modelCard, modelSelect, textArea} from "../widgets.js";
import {textExamples} from "./common.js";

const EXAMPLES = {en: ["The president said", "Scientists have found", "In the final of the"], zh: ["中国", "他出生于", "这部电影"]};
const OPTIONS = {length: 60, temperature: 0.8, top_k: null, top_p: 0.95, seed: 1};
const LIMITS = {
  length: {min: 1, max: 500, step: 1}, temperature: {min: 0, max: 2, step: 0.1}, top_k: {min: 1, max: 1000, step: 1},
  top_p: {min: 0, max: 1, step: 0.05}, seed: {min: 0, max: 1000000, step: 1},
};

export const generate = {
  id: "generate",
  group: "language",
  stops: true,
  can: (model) => model.abilities.has("generate"),
  defaults: () => ({prompt: EXAMPLES[language()][0], ...OPTIONS}),
  examples: textExamples(EXAMPLES, "prompt"),

  fields({state, changed, spec}) {
    const numbers = Object.entries(LIMITS).map(([name, limits]) => input(state, name, t(`generate.${name}`), changed, limits));
    return [textArea(state, "prompt", t("generate.prompt"), changed, 2), modelSelect(state, "model", t("model"), spec.models, changed), fieldRow(true, numbers)];
  },

  calls(values) {
    const options = Object.keys(LIMITS).filter((name) => values[name] !== null).map((name) => [name, values[name]]);
    return [{path: "/generate", body: {model: values.model, prompt: values.prompt, ...Object.fromEntries(options), stream: true}}];
  },

  async ask(values, signal, progress) {
    const [call] = this.calls(values);
    const result = {name: values.model, prompt: values.prompt, text: "", isRunning: true};
    progress(result);
    try {
      await stream(call.path, call.body, signal, (event) => {
        result.text = event.text ?? event.texts?.[0] ?? result.text;
        progress(result);
      });
    } catch (error) {
      if (error.name !== "AbortError") throw error;
      result.isStopped = true; // what was written stays
    }
    return {...result, isRunning: false};
  },

  show({name, prompt, text, isRunning, isStopped}) {
    const begin = text.startsWith(prompt) ? prompt : "";
    const written = h("p", {class: isRunning ? "written running" : "written", lang: languageOf(text + prompt)},
      begin && h("span", {class: "quiet"}, begin), text.slice(begin.length));
    return modelCard(name, isStopped && h("span", {class: "badge"}, t("stopped")), written);
  },

  summary: ({isStopped}) => (isStopped ? t("stopped") : t("done")),
};
