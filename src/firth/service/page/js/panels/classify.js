// The labels of a text or of a pair of texts.

import {post} from "../api.js";
import {h} from "../dom.js";
import {language, number, percent, t} from "../i18n.js";
import {bars, fieldRow, modelCard, modelSelect, noteEach, textArea} from "../widgets.js";
import {predictCall} from "./common.js";

const TASKS = new Set(["classify", "pair"]);
const EXAMPLES = {
  en: [
    {text: "Stocks fell on Wall Street after the central bank raised interest rates.", second: "Share prices went down."},
    {text: "The striker scored twice in the second half of the final.", second: "Nobody scored a goal."},
    {text: "A charming film, and one of the best of the year.", second: "I liked this film."},
  ],
  zh: [
    {text: "房间很干净，服务也很好，下次还会来。", second: "酒店不错。"},
    {text: "屏幕有坏点，客服态度很差。", second: "质量有问题。"},
  ],
};

export const classify = {
  id: "classify",
  group: "tasks",
  can: (model) => model.abilities.has("predict") && TASKS.has(model.task),
  defaults: () => ({...EXAMPLES[language()][0]}),
  examples: Object.fromEntries(Object.entries(EXAMPLES).map(([name, list]) => [name, list.map((values) => ({label: values.text, values}))])),

  isPair({model}) {
    return this.models.find((one) => one.id === model)?.task === "pair";
  },

  fields(view) {
    const {state, changed, spec} = view;
    const select = modelSelect(state, "model", t("model"), spec.models, () => view.drawFields());
    const first = textArea(state, "text", t("text"), changed, 2);
    const isPair = spec.isPair(state.values);
    return [isPair ? fieldRow(false, first, textArea(state, "second", t("classify.second"), changed, 2)) : first, select];
  },

  calls(values) {
    const {text, second, model} = values;
    return [predictCall(this, model, this.isPair(values) ? [text, second] : text)];
  },

  async ask(values, signal) {
    const [call] = this.calls(values);
    return {...(await post(call.path, call.body, signal)), name: call.body.model};
  },

  show(answer) {
    const [found] = answer.results;
    return [modelCard(answer.name, null, found.probabilities ? labelBars(found) : h("p", {class: "answer"}, number(found.score, 3))), noteEach([answer], (one) => one.results)];
  },

  summary: ({results: [found]}) => found.label ?? found.labels?.join(", ") ?? number(found.score, 3),
};

function labelBars(found) {
  const chosen = new Set(found.labels ?? [found.label]);
  const sorted = Object.entries(found.probabilities).sort((one, two) => two[1] - one[1]);
  return bars(sorted.map(([name, part]) => ({name, part, value: percent(part), best: chosen.has(name)})));
}
