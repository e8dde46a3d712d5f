// A word in two contexts: static vectors give it one vector, contextual ones give it two.

import {post} from "../api.js";
import {bar, h, languageOf} from "../dom.js";
import {language, number, t} from "../i18n.js";
import {bars, fieldRow, input, modelCard, modelChips, textArea} from "../widgets.js";

const EXAMPLES = {
  en: [
    {word: "bank", one: "The bank raised its interest rates on loans.", two: "They walked along the bank of the river.",
      others: "The lender cut interest rates on savings accounts.\nThe boat stayed near the shore of the lake.\nHe put his money into the market.\nTrees grow beside the water of the stream."},
    {word: "season", one: "The team won every game of the season.", two: "Heavy rain falls in the wet season.",
      others: "The league ended in May.\nThe summer was hot and dry.\nPlayers trained for the match."},
  ],
  zh: [
    {word: "苹果", one: "苹果发布了新的手机和电脑。", two: "他每天早上吃一个苹果。",
      others: "这家公司推出了新的软件。\n他喜欢吃香蕉和西瓜。\n微软生产电脑系统。\n树上有许多水果。"},
    {word: "包袱", one: "他背着一个包袱走了。", two: "这段历史成为沉重的包袱。",
      others: "他提着一个箱子。\n这个问题带来很大的压力。"},
  ],
};

const SHOWN = 6; // neighbours

function sentencesOf(text) {
  return text.split("\n").map((one) => one.trim()).filter(Boolean);
}

export const contexts = {
  id: "contexts",
  group: "vectors",
  can: (model) => model.abilities.has("similar"),
  defaults: () => ({...EXAMPLES[language()][0]}),
  examples: Object.fromEntries(Object.entries(EXAMPLES).map(([name, list]) => [name, list.map((values) => ({label: values.word, values}))])),

  fields({state, changed, spec}) {
    return [
      input(state, "word", t("word"), changed),
      fieldRow(false, textArea(state, "one", t("contexts.one"), changed, 2), textArea(state, "two", t("contexts.two"), changed, 2)),
      textArea(state, "others", t("contexts.others"), changed, 3),
      spec.models.length > 1 && modelChips(state, "models", spec.models, changed),
    ];
  },

  chosen({models}) {
    return models ? this.models.filter((model) => models.includes(model.name)) : this.models;
  },

  calls(values) {
    const contextual = this.chosen(values).find((model) => model.context);
    const name = (contextual ?? this.models[0]).name;
    return [{path: "/similar", body: contextual ? inContext(name, values, "one") : withoutContext(name, values)}];
  },

  async ask(values, signal) {
    const models = await Promise.all(this.chosen(values).map((model) => this.askModel(model, values, signal)));
    return {word: values.word, models};
  },

  async askModel(model, values, signal) {
    if (!model.context) {
      const answer = await post("/similar", withoutContext(model.name, values), signal);
      return {name: model.name, isStatic: true, cosine: 1, sides: [answer.neighbours, answer.neighbours]};
    }
    const between = {model: model.name, word: values.word, context: values.one, sentences: [values.two], count: 200};
    const bodies = [inContext(model.name, values, "one"), inContext(model.name, values, "two"), between];
    const [one, two, both] = await Promise.all(bodies.map((body) => post("/similar", body, signal)));
    const same = both.neighbours.find((near) => near.word.toLowerCase() === values.word.trim().toLowerCase());
    return {name: model.name, cosine: same?.score, sides: [one.neighbours, two.neighbours]};
  },

  show({word, models}) {
    return [...models.map((one) => card(word, one))];
  },

  summary: ({models}) => models.map((one) => `${one.name}: ${one.isStatic ? t("contexts.static") : number(one.cosine ?? NaN)}`).join(" · "),
};

function withoutContext(model, {word}) {
  return {model, word, count: SHOWN};
}

function inContext(model, values, side) {
  const other = side === "one" ? values.two : values.one;
  const sentences = sentencesOf(values.others);
  return {model, word: values.word, context: values[side], sentences: sentences.length ? sentences : [other], count: 30};
}

/** The nearest occurrence of each word. */
function distinct(near) {
  return near.filter((one, index) => near.findIndex((two) => two.word === one.word) === index).slice(0, SHOWN);
}

function card(word, {name, isStatic, cosine, sides}) {
  const extras = [
    h("span", {class: "badge"}, isStatic ? t("contexts.static") : t("contexts.contextual")),
    h("span", {class: "figure"}, `${t("contexts.cosine")} `, h("b", {}, number(cosine ?? NaN))),
  ];
  const columns = sides.map((near, index) => h("div", {},
    h("p", {class: "small quiet"}, t(isStatic ? "contexts.near" : index ? "contexts.near.two" : "contexts.near.one", {word})),
    bars(distinct(near).map((one) => ({name: one.word, part: one.score, value: number(one.score)})))));
  return modelCard(name, extras, bar(cosine ?? 0), h("p", {class: "quiet small"}, isStatic ? t("contexts.static.long") : t("contexts.contextual.long")),
    h("div", {class: "contexts", lang: languageOf(word)}, isStatic ? columns.slice(0, 1) : columns));
}
