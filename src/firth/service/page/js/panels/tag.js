// Tags of words, shown in the text: spans of BIO and BIOES tags are joined.

import {post} from "../api.js";
import {h, languageOf} from "../dom.js";
import {language, t} from "../i18n.js";
import {modelCard, modelSelect, noteEach, textArea} from "../widgets.js";
import {predictCall, textExamples} from "./common.js";

const EXAMPLES = {
  en: ["Angela Merkel met Barack Obama in Berlin on Monday.", "The United Nations sent observers to Lebanon."],
  zh: ["中国国家主席江泽民在北京会见了美国总统克林顿。", "新华社记者王小明从上海报道。"],
};
const COLOURS = 6;

export const tag = {
  id: "tag",
  group: "tasks",
  can: (model) => model.abilities.has("predict") && model.task === "tag",
  defaults: () => ({text: EXAMPLES[language()][0]}),
  examples: textExamples(EXAMPLES),

  fields({state, changed, spec}) {
    return [textArea(state, "text", t("text"), changed, 2), modelSelect(state, "model", t("model"), spec.models, changed)];
  },

  calls({text, model}) {
    return [predictCall(this, model, wordsOf(text))];
  },

  async ask(values, signal) {
    const [call] = this.calls(values);
    return {...(await post(call.path, call.body, signal)), name: call.body.model, text: values.text};
  },

  show(answer) {
    const [found] = answer.results;
    const spans = joinTags(located(answer.text, wordsOf(answer.text)), found.tags);
    return [modelCard(answer.name, null, passage(answer.text, spans), spans.length ? null : h("p", {class: "quiet"}, t("tag.none"))), noteEach([answer], (one) => one.results)];
  },

  summary: ({text, results: [found]}) => t("tag.summary", {count: joinTags(located(text, wordsOf(text)), found.tags).length}),
};

/** Words, numbers and signs; each Chinese character by itself, as Chinese taggers read them. */
export function wordsOf(text) {
  return text.match(/\p{Script=Han}|[[\p{L}\p{N}\p{M}]--\p{Script=Han}]+(?:['’.\-][\p{L}\p{N}]+)*|\S/gv) ?? [];
}

/** The offsets of words in a text, in its code units. */
function located(text, words) {
  let done = 0;
  return words.map((word) => {
    const start = Math.max(text.indexOf(word, done), done);
    done = start + word.length;
    return {start, end: done};
  });
}

/** Spans of equal labels: B-X I-X I-X is one span; tags without a prefix are spans of one word, those of words (B, E) have no label. */
export function joinTags(words, tags) {
  const spans = [];
  tags.forEach((tag, index) => {
    const [, prefix, label] = /^([BIESMLU])(?:-(.+))?$/.exec(tag) ?? [null, "", tag];
    if (tag === "O" || !words[index]) return;
    const last = spans.at(-1);
    const continues = "IEML".includes(prefix) && prefix && last?.label === label && last.index === index - 1;
    if (continues) Object.assign(last, {end: words[index].end, index});
    else spans.push({...words[index], label, index});
  });
  return spans;
}

function passage(text, spans) {
  const labels = [...new Set(spans.map((span) => span.label))];
  const parts = [];
  let done = 0;
  for (const span of spans) {
    const colour = labels.indexOf(span.label) % COLOURS;
    parts.push(text.slice(done, span.start), h("span", {class: `span l${colour}`}, text.slice(span.start, span.end), span.label && h("small", {}, span.label)));
    done = span.end;
  }
  return h("p", {class: "passage", lang: languageOf(text)}, parts, text.slice(done));
}
