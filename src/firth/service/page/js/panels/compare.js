// Two models and two sentences: which sentence does each prefer, and by how many bits?

import {h, prose} from "../dom.js";
import {language, number, t} from "../i18n.js";
import {fieldRow, modelCard, modelSelect, noteEach, textArea} from "../widgets.js";
import {askEach, failures} from "./common.js";

const EXAMPLES = {
  en: [
    {one: "The keys to the cabinet are on the table.", two: "The keys to the cabinet is on the table."},
    {one: "The police arrested two men.", two: "The police arrested two man."},
    {one: "He drank a cup of tea.", two: "He drank a cup of stone."},
  ],
  zh: [
    {one: "他吃了一个苹果。", two: "他吃了一条苹果。"},
    {one: "我昨天去了北京。", two: "我明天去了北京。"},
  ],
};

export const compare = {
  id: "compare",
  group: "language",
  can: (model) => model.abilities.has("score"),
  defaults: (models) => ({...EXAMPLES[language()][0], first: models[0]?.name, second: (models[1] ?? models[0])?.name}),
  examples: Object.fromEntries(Object.entries(EXAMPLES).map(([name, list]) => [name, list.map((values) => ({label: `${values.one} / ${values.two}`, values}))])),

  fields({state, changed, spec}) {
    const both = ["first", "second"].map((name) => modelSelect(state, name, t(`compare.${name}`), spec.models, changed));
    return [
      fieldRow(false, textArea(state, "one", t("compare.one"), changed, 2), textArea(state, "two", t("compare.two"), changed, 2)),
      fieldRow(false, spec.models.length > 1 ? both : both.slice(0, 1)),
    ];
  },

  calls({one, two, first, second}) {
    return [...new Set([first, second])].map((model) => ({path: "/score", body: {model, texts: [one, two]}}));
  },

  async ask(values, signal) {
    return {sentences: [values.one, values.two], ...(await askEach(this.calls(values), signal))};
  },

  show({sentences, models, failed}) {
    const rows = models.map(preference);
    const most = Math.max(...rows.map((row) => Math.abs(row.difference)).filter(Number.isFinite), 1);
    return [h("div", {class: "side-by-side"}, models.map((answer, index) => card(answer, rows[index], sentences, most))), failures(failed), noteEach(models, (one) => one.results)];
  },

  summary: ({models}) => models.map((one) => verdict(preference(one), one.name)).join(" "),
};

/** The bits of both sentences, and how many more the second needs. */
function preference({results}) {
  const bits = results.map((one) => -one.logprob / Math.LN2);
  return {bits, difference: bits[1] - bits[0]};
}

function verdict({difference}, name) {
  const bits = number(Math.abs(difference), 1);
  if (bits === number(0, 1)) return t("compare.tie", {name});
  return t(difference > 0 ? "compare.prefers.first" : "compare.prefers.second", {name, bits});
}

function times(difference) {
  const ratio = 2 ** Math.abs(difference);
  return ratio < 1e6 ? t("compare.times", {times: number(ratio, ratio < 10 ? 1 : 0)}) : t("compare.times.many");
}

function card(answer, row, sentences, most) {
  const isPseudo = answer.kind === "pseudo";
  const preferred = row.difference > 0 ? 0 : 1;
  const half = (side) => {
    const part = side === preferred && Number.isFinite(row.difference) ? Math.abs(row.difference) / most * 100 : 0;
    return h("div", {class: "half"}, h("i", {style: {"--part": `${part}%`}}));
  };
  const label = (side) => h("p", {class: side === preferred && row.difference !== 0 ? "preferred" : ""},
    prose("span", {}, sentences[side]), h("br", {}), t("bits", {bits: number(row.bits[side], 1)}));
  return modelCard(answer.name, isPseudo && h("span", {class: "badge", title: t("pseudo.long")}, t("pseudo")),
    h("div", {class: "versus"},
      h("p", {class: "verdict"}, verdict(row, answer.name), " ", h("span", {class: "quiet"}, row.difference ? times(row.difference) : "")),
      h("div", {class: "tug"}, half(0), half(1), label(0), label(1))));
}
