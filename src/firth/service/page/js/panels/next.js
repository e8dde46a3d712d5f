// The most probable next words.

import {h} from "../dom.js";
import {language, percent, t} from "../i18n.js";
import {bars, modelCard, modelChips, noteEach, textArea} from "../widgets.js";
import {askEach, callEach, failures, textExamples} from "./common.js";

const EXAMPLES = {
  en: ["The president of the United", "According to a report in the New York", "The police said that"],
  zh: ["中华人民", "他出生于", "这个城市位于"],
};

export const next = {
  id: "next",
  group: "language",
  live: true,
  can: (model) => model.abilities.has("next"),
  defaults: () => ({text: EXAMPLES[language()][0]}),
  examples: textExamples(EXAMPLES),

  fields({state, changed, spec}) {
    return [textArea(state, "text", t("next.text"), changed, 2), spec.models.length > 1 && modelChips(state, "models", spec.models, changed)];
  },

  calls({text, models}) {
    return callEach(this, models, "/next", () => ({history: text, top: 8}));
  },

  ask(values, signal) {
    return askEach(this.calls(values), signal);
  },

  show({models, failed}, view) {
    const cards = models.map((one) => modelCard(one.name, null, bars(one.next.map((row) => ({
      name: shown(row.token), part: row.probability, value: percent(row.probability), isFixed: Boolean(special(row.token)),
    })), (word) => view.pick({text: appended(view.state.values.text, word)}))));
    return [h("div", {class: "side-by-side"}, cards), failures(failed), noteEach(models, (one) => [one])];
  },

  summary: ({models}) => models.map((one) => `${one.name}: ${shown(one.next[0]?.token ?? "")}`).join(" · "),
};

/** Names of the tokens that are no text. */
function special(token) {
  return {"</s>": t("token.end"), "<unk>": t("token.other")}[token];
}

/** A token without the signs that stand for spaces and for parts of words. */
function shown(token) {
  return special(token) ?? (token.replace(/^[Ġ▁ ]|<\/w>$/g, "").replace(/^##/, "") || token);
}

function appended(text, word) {
  const isTight = /[\p{Script=Han}]$/u.test(text) || /^[\p{Script=Han}\p{P}]/u.test(word) || /\s$/.test(text) || !text;
  return text + (isTight ? "" : " ") + word;
}
