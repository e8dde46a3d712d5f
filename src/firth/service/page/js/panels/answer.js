// A question about a passage, answered by a span of it; or by one of several choices.

import {post} from "../api.js";
import {h, languageOf} from "../dom.js";
import {language, number, percent, t} from "../i18n.js";
import {bars, input, modelCard, modelSelect, noteEach, textArea} from "../widgets.js";
import {predictCall} from "./common.js";

const TASKS = new Set(["span", "choice"]);
const EXAMPLES = {
  en: [
    {question: "When was the university founded?", choices: "in 1209\nin 1870",
      passage: "The University of Cambridge is a public university in Cambridge, England. It was founded in 1209 and is one of the oldest in the world."},
    {question: "Who coined the phrase?", choices: "Firth\nHarris",
      passage: "The linguist John Rupert Firth wrote in 1957 that you shall know a word by the company it keeps. Zellig Harris had similar ideas in New York."},
  ],
  zh: [
    {question: "这座城市位于哪里？", choices: "江苏省\n浙江省",
      passage: "杭州是浙江省的省会，位于中国东南沿海。西湖是杭州最有名的景点，每年吸引数百万游客。"},
    {question: "这所大学成立于哪一年？", choices: "1898年\n1911年", passage: "北京大学成立于1898年，是中国近代第一所国立综合性大学，校园位于海淀区。"},
  ],
};

export const answer = {
  id: "answer",
  group: "tasks",
  can: (model) => model.abilities.has("predict") && TASKS.has(model.task),
  defaults: () => ({...EXAMPLES[language()][0]}),
  examples: Object.fromEntries(Object.entries(EXAMPLES).map(([name, list]) => [name, list.map((values) => ({label: values.question, values}))])),

  isChoice({model}) {
    return this.models.find((one) => one.id === model)?.task === "choice";
  },

  fields(view) {
    const {state, changed, spec} = view;
    const select = modelSelect(state, "model", t("model"), spec.models, () => view.drawFields());
    return [
      textArea(state, "passage", t("answer.passage"), changed, 4), input(state, "question", t("answer.question"), changed),
      spec.isChoice(state.values) && textArea(state, "choices", t("answer.choices"), changed, 3), select,
    ];
  },

  calls(values) {
    const {passage, question, model} = values;
    const item = this.isChoice(values) ? {context: passage, question, choices: choicesOf(values)} : {passage, question};
    return [predictCall(this, model, item)];
  },

  async ask(values, signal) {
    const [call] = this.calls(values);
    return {...(await post(call.path, call.body, signal)), name: call.body.model, passage: values.passage, choices: choicesOf(values)};
  },

  show(result) {
    const [found] = result.results;
    return [modelCard(result.name, null, found.answer === undefined ? choiceBars(found, result.choices) : spanAnswer(found, result.passage)), noteEach([result], (one) => one.results)];
  },

  summary({results: [found], choices}) {
    return found.answer === undefined ? choices[found.choice] : found.answer || t("answer.none");
  },
};

function choicesOf({choices}) {
  return choices.split("\n").map((one) => one.trim()).filter(Boolean);
}

function choiceBars(found, choices) {
  const best = found.choice;
  return bars(choices.map((name, index) => ({name, part: found.probabilities[index], value: percent(found.probabilities[index]), best: index === best})));
}

/** The answer, and the passage with its span; the start is in code points. */
function spanAnswer(found, passage) {
  const shown = found.answer || found.span;
  if (!shown) return h("p", {class: "answer"}, t("answer.none"));
  const characters = Array.from(passage);
  const end = found.start + Array.from(shown).length;
  const parts = [characters.slice(0, found.start), characters.slice(found.start, end), characters.slice(end)].map((one) => one.join(""));
  return [
    h("p", {class: "answer", lang: languageOf(shown)}, found.answer || t("answer.unsure")),
    h("p", {class: "passage", lang: languageOf(passage)}, parts[0], h("mark", {}, parts[1]), parts[2]),
    Number.isFinite(found.score) && h("p", {class: "quiet small"}, t("answer.score", {score: number(found.score)})),
  ];
}
