// The two languages of the page.

import {en} from "./text/en.js";
import {zh} from "./text/zh.js";
import {recall, remember} from "./store.js";

const TEXTS = {en, zh};
export const LANGUAGES = {en: "English", zh: "中文"};

let current = choose();

function choose() {
  const saved = recall("language");
  if (saved in TEXTS) return saved;
  const wanted = navigator.languages ?? [navigator.language];
  const known = wanted.map((one) => one.toLowerCase().split("-")[0]).find((one) => one in TEXTS);
  return known ?? "en";
}

export function language() {
  return current;
}

export function setLanguage(name) {
  current = name;
  remember("language", name);
}

/** The text of a key, with {names} replaced. */
export function t(key, values = {}) {
  const text = TEXTS[current][key];
  if (text === undefined) throw new Error(`no text for ${key}`);
  return text.replace(/\{(\w+)\}/g, (_, name) => String(values[name]));
}

export function number(value, digits = 2) {
  if (!Number.isFinite(value)) return value === Infinity ? "∞" : "–";
  return value.toLocaleString(current, {minimumFractionDigits: digits, maximumFractionDigits: digits});
}

export function percent(value) {
  const digits = value >= 0.0995 ? 0 : value >= 0.00995 ? 1 : 2;
  return value < 0.0001 ? "< 0.01%" : `${number(value * 100, digits)}%`;
}
