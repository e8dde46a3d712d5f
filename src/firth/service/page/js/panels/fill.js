// The most probable words for a mask.

import {h, languageOf} from "../dom.js";
import {language, percent, t} from "../i18n.js";
import {bars, modelCard, modelChips, noteEach, textArea} from "../widgets.js";
import {askEach, callEach, failures, textExamples} from "./common.js";

const MASK = /\[MASK\]|<mask>/;
const EXAMPLES = {
  en: ["The capital of [MASK] is Paris.", "The police said that two [MASK] were killed.", "The [MASK] of the United States said it."],
  zh: ["中国的首都是[MASK][MASK]。", "他出生于一个[MASK]人家庭。"],
};

export const fill = {
  id: "fill",
  group: "language",
  can: (model) => model.abilities.has("fill"),
  defaults: () => ({text: EXAMPLES[language()][0]}),
  examples: textExamples(EXAMPLES),

  fields(view) {
    const {state, changed, spec} = view;
    const area = textArea(state, "text", t("fill.text"), changed, 2);
    const insert = h("button", {class: "button plain", type: "button", on: {click: () => insertMask(area.querySelector("textarea"))}}, t("fill.insert"));
    area.append(insert);
    return [area, spec.models.length > 1 && modelChips(state, "models", spec.models, changed)];
  },

  calls({text, models}) {
    return callEach(this, models, "/fill", () => ({text, top: 8}));
  },

  async ask(values, signal) {
    return {text: values.text, ...(await askEach(this.calls(values), signal))};
  },

  show({text, models, failed}, view) {
    const cards = models.map((one) => modelCard(one.name, null, one.masks.map((mask, index) => maskBars(text, mask, index, one.masks.length, view))));
    return [h("div", {class: "side-by-side"}, cards), failures(failed), noteEach(models, (one) => [one])];
  },

  summary({models}) {
    return models.map((one) => `${one.name}: ${one.masks.map((mask) => mask[0]?.token.trim()).join(" ")}`).join(" · ");
  },
};

function insertMask(area) {
  area.setRangeText("[MASK]", area.selectionStart, area.selectionEnd, "end");
  area.focus();
  area.dispatchEvent(new Event("input", {bubbles: true}));
}

/** The sentence with the best word in it, and the bars; a click on another word puts that into the sentence. */
function maskBars(text, mask, index, count, view) {
  const sentence = h("p", {class: "filled", lang: languageOf(text)});
  const put = (word) => {
    const parts = text.split(MASK);
    const around = parts.flatMap((part, number) => (number === 0 ? [part] : [number - 1 === index ? h("mark", {}, word) : "▁", part]));
    sentence.replaceChildren(...around);
  };
  put(mask[0].token.trim());
  const items = mask.map((one) => ({name: one.token.trim() || one.token, part: one.probability, value: percent(one.probability)}));
  return [count > 1 && h("h4", {class: "quiet small"}, t("fill.mask", {number: index + 1})), sentence, bars(items, put)];
}
