// Each token's surprise under several models, side by side.

import {bar, h, languageOf, roving} from "../dom.js";
import {language, number, t} from "../i18n.js";
import {recall, remember} from "../store.js";
import {modelCard, modelChips, noteEach, textArea} from "../widgets.js";
import {askEach, callEach, failures, textExamples} from "./common.js";

/** Lower bounds of the steps of the colour scale, in bits. */
const STEPS = [0, 1, 2, 4, 7, 10, 14];

export function step(bits) {
  return Number.isFinite(bits) ? Math.max(STEPS.findLastIndex((from) => bits >= from), 0) : STEPS.length - 1;
}

const EXAMPLES = {
  en: [
    "The president said on Tuesday that the economy would grow this year.",
    "The keys to the cabinet are on the table.",
    "Colourless green ideas sleep furiously.",
  ],
  zh: ["中国是世界上人口最多的国家之一。", "他昨天在北京吃了一个月亮。"],
};

export const surprise = {
  id: "surprise",
  group: "language",
  live: true,
  can: (model) => model.abilities.has("score"),
  defaults: () => ({text: EXAMPLES[language()][0]}),
  examples: textExamples(EXAMPLES),

  fields(view) {
    const {state, changed} = view;
    return [textArea(state, "text", t("text"), changed), view.spec.models.length > 1 && modelChips(state, "models", view.spec.models, changed)];
  },

  calls({text, models}) {
    return callEach(this, models, "/score", () => ({texts: [text], tokens: true}));
  },

  async ask(values, signal) {
    const {text} = values;
    if (!text.trim()) return {text, models: [], failed: []};
    return {text, ...(await askEach(this.calls(values), signal))};
  },

  show({text, models, failed}) {
    if (!models.length) return [];
    const most = Math.max(...models.map((one) => one.results[0].bits_per_byte));
    const rows = models.map((one) => tokenRow(text, one.results[0].pieces));
    const cards = models.map((one, index) => card(one, rows[index], most));
    link(rows);
    return [legend(rows), h("div", {class: "side-by-side"}, cards), failures(failed), noteEach(models, (one) => one.results)];
  },

  summary({models}) {
    return models.map((one) => t("surprise.summary", {name: one.name, bits: number(one.results[0].bits_per_byte)})).join(" · ");
  },
};

function card(answer, row, most) {
  const [result] = answer.results;
  const isPseudo = answer.kind === "pseudo";
  const extras = [
    isPseudo && h("span", {class: "badge", title: t("pseudo.long")}, t("pseudo")),
    h("span", {class: "figure"}, h("b", {}, number(result.bits_per_byte)), ` ${t("bits.per.byte")}`),
  ];
  return modelCard(answer.name, extras, bar(result.bits_per_byte / most), row,
    h("p", {class: "quiet small"}, totals(result), isPseudo && ` ${t("pseudo.long")}`));
}

function totals(result) {
  const bits = -result.logprob / Math.LN2;
  return t("surprise.totals", {bits: number(bits, 1), tokens: result.tokens});
}

/** The tokens of a text, with the characters between them; offsets are in code points. */
function tokenRow(text, tokens) {
  const characters = Array.from(text);
  const row = h("div", {class: recall("numbers") === "no" ? "tokens bare" : "tokens", role: "list", lang: languageOf(text)});
  let done = 0;
  tokens.forEach((token) => {
    if (token.start === null) {
      row.append(tokenBox(token, ""));
      return;
    }
    const first = Math.max(token.start, done);
    if (first > done) row.append(characters.slice(done, first).join(""));
    const own = characters.slice(first, token.end).join("");
    done = Math.max(done, token.end);
    row.append(tokenBox(token, own));
  });
  row.append(characters.slice(done).join(""));
  roving(row, [...row.querySelectorAll(".token")]);
  return row;
}

function tokenBox(token, own) {
  const isEnd = token.start === null;
  const shown = isEnd ? t("token.end") : own.trim() || token.token;
  const surprise = -token.logprob / Math.LN2;
  const bits = number(surprise, 1);
  const label = t("token.label", {token: shown, bits});
  const box = h("span", {class: `token s${step(surprise)}${isEnd ? " end" : ""}`, role: "listitem",
    "aria-label": label, title: token.unknown ? `${label} ${t("token.unknown")}` : label}, h("b", {}, shown), h("small", {}, bits));
  Object.assign(box.dataset, {start: token.start ?? -1, end: token.end ?? -1});
  return box;
}

/** Outlines the same characters under every model while the pointer or the focus is on a token. */
function link(rows) {
  const boxes = rows.flatMap((row) => [...row.querySelectorAll(".token")]);
  const range = (box) => [Number(box.dataset.start), Number(box.dataset.end)];
  const mark = (event) => {
    const target = event.target.closest?.(".token");
    const isOut = event.type === "pointerout" || event.type === "focusout";
    const [start, end] = target && !isOut ? range(target) : [0, 0];
    for (const box of boxes) {
      const [from, to] = range(box);
      box.classList.toggle("linked", from < end && to > start);
    }
  };
  for (const row of rows) {
    for (const event of ["pointerover", "pointerout", "focusin", "focusout"]) row.addEventListener(event, mark);
  }
}

function legend(rows) {
  const steps = STEPS.map((from, index) => {
    const to = STEPS[index + 1];
    return h("li", {class: `s${index}`}, h("b", {}, to === undefined ? `≥ ${from}` : `${from}–${to}`));
  });
  const box = h("input", {type: "checkbox", checked: recall("numbers") !== "no"});
  box.addEventListener("change", () => {
    remember("numbers", box.checked ? "yes" : "no");
    for (const row of rows) row.classList.toggle("bare", !box.checked);
  });
  return h("div", {class: "legend"}, h("span", {}, t("legend")), h("ol", {"aria-label": t("legend")}, steps), h("label", {}, box, t("numbers")));
}
