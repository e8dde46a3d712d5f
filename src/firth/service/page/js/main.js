// The frame of the page: header, list of panels, and the panel that the address names.

import {get, hasKey, setKey} from "./api.js";
import {h, uniqueId} from "./dom.js";
import {LANGUAGES, language, setLanguage, t} from "./i18n.js";
import {answer} from "./panels/answer.js";
import {classify} from "./panels/classify.js";
import {compare} from "./panels/compare.js";
import {contexts} from "./panels/contexts.js";
import {fill} from "./panels/fill.js";
import {generate} from "./panels/generate.js";
import {modelsPanel} from "./panels/models.js";
import {neighbours} from "./panels/neighbours.js";
import {next} from "./panels/next.js";
import {surprise} from "./panels/surprise.js";
import {tag} from "./panels/tag.js";
import {buildPanel} from "./shell.js";
import {recall, remember} from "./store.js";

const PANELS = [surprise, compare, next, generate, fill, neighbours, contexts, classify, tag, answer];
const GROUPS = ["language", "vectors", "tasks"];
const RETRY = 2000; // milliseconds
const THEMES = ["auto", "light", "dark"];

const page = document.getElementById("page");
let models = [];
let problem;

async function load() {
  try {
    const info = await get("/info");
    models = info.models.flatMap(entries);
    problem = undefined;
  } catch (error) {
    problem = error;
    if (error.status === 503 || error.status === 0) setTimeout(load, RETRY); // the models are being loaded
  }
  render();
}

/** A model as an entry of menus; one for each task if it was fine-tuned for several. */
function entries(model) {
  const base = {...model, id: model.name, abilities: new Set(model.abilities)};
  const tasks = Object.entries(model.tasks ?? {});
  if (tasks.length < 2) return [{...base, task: tasks[0]?.[1], taskName: tasks[0]?.[0]}];
  return tasks.map(([taskName, task]) => ({...base, id: `${model.name}: ${taskName}`, task, taskName}));
}

function available() {
  const panels = PANELS.map((panel) => Object.assign(panel, {models: unique(models.filter((model) => panel.can(model)), panel.group)}));
  return {shown: panels.filter((panel) => panel.models.length), missing: panels.filter((panel) => !panel.models.length)};
}

/** Outside the tasks a model counts once; static vectors come first among vectors, fine-tuned models last. */
function unique(found, group) {
  if (group === "tasks") return found;
  const once = found.filter((model, index) => found.findIndex((one) => one.name === model.name) === index);
  const rank = (model) => 2 * Boolean(model.task) + (group === "vectors" && model.context);
  return once.sort((one, two) => rank(one) - rank(two));
}

function render() {
  document.documentElement.lang = language() === "zh" ? "zh-Hans" : "en";
  document.title = t("title");
  page.replaceChildren(
    h("a", {class: "skip", href: "#main", on: {click: toMain}}, t("skip")),
    header(), h("div", {class: "frame"}, navigation(), h("main", {id: "main", tabindex: "-1"})), footer());
  showPanel();
}

function toMain(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

function header() {
  return h("header", {class: "top"},
    h("div", {class: "brand"}, h("h1", {}, "Firth"), h("p", {}, t("motto"))),
    h("div", {class: "switches"}, languageSwitch(), themeSwitch()));
}

function toggle(label, names, titles, isChosen, choose) {
  return h("div", {class: "switch", role: "group", "aria-label": label}, names.map((name) => h("button", {
    type: "button", "data-choice": name, "aria-pressed": String(isChosen(name)), lang: titles[name].lang,
    on: {click: () => {
      choose(name);
      render();
      page.querySelector(`[data-choice="${name}"]`).focus();
    }},
  }, titles[name].text)));
}

function languageSwitch() {
  const titles = Object.fromEntries(Object.entries(LANGUAGES).map(([name, text]) => [name, {text, lang: name}]));
  return toggle(t("language"), Object.keys(LANGUAGES), titles, (name) => name === language(), setLanguage);
}

function themeSwitch() {
  const titles = Object.fromEntries(THEMES.map((name) => [name, {text: t(`theme.${name}`)}]));
  const choose = (name) => {
    remember("theme", name);
    dispatchEvent(new Event("firth-theme"));
  };
  return toggle(t("theme"), THEMES, titles, (name) => name === (recall("theme") ?? "auto"), choose);
}

function navigation() {
  const {shown} = available();
  const entry = (id, text) => h("li", {}, h("a", {href: `#${id}`}, text));
  const group = (name, entries) => entries.length > 0 && h("div", {}, h("h2", {}, t(`group.${name}`)), h("ul", {}, entries));
  return h("nav", {class: "panels", "aria-label": t("panels")},
    GROUPS.map((name) => group(name, shown.filter((panel) => panel.group === name).map((panel) => entry(panel.id, t(`${panel.id}.nav`))))),
    group("server", [entry("models", t("about.nav"))]));
}

function footer() {
  return h("footer", {class: "foot"}, h("a", {href: "/docs"}, t("foot.docs")), !hasKey() && h("a", {href: "/metrics"}, t("foot.metrics")), h("span", {}, t("foot.private")));
}

function showPanel(focus = false) {
  const main = document.getElementById("main");
  if (problem) {
    main.replaceChildren(...[problem.status === 401 && keyForm(), h("p", {class: "error", role: "alert"}, problem.message)].filter(Boolean));
    return;
  }
  const {shown, missing} = available();
  const asked = location.hash.slice(1);
  const panel = shown.find((one) => one.id === asked) ?? (asked === "models" ? undefined : shown[0]);
  const id = panel?.id ?? "models";
  main.replaceChildren(panel ? buildPanel(panel, {askKey}) : modelsPanel(models, missing));
  for (const link of page.querySelectorAll(".panels a")) {
    const isCurrent = link.hash === `#${id}`;
    if (isCurrent) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
    if (isCurrent) link.scrollIntoView({block: "nearest", inline: "center"});
  }
  if (focus) main.focus({preventScroll: true});
}

function askKey() {
  const main = document.getElementById("main");
  if (!main.querySelector(".key")) main.prepend(keyForm());
}

/** A field for the key of the server; the key is kept in memory alone. */
function keyForm() {
  const id = uniqueId("key");
  const field = h("input", {id, type: "password", autocomplete: "off", required: true});
  const use = (event) => {
    event.preventDefault();
    setKey(field.value);
    load();
  };
  return h("form", {class: "card key", on: {submit: use}},
    h("div", {class: "field"}, h("label", {for: id}, hasKey() ? t("key.wrong") : t("key.label")), field),
    h("button", {class: "button primary", type: "submit"}, t("key.use")));
}

addEventListener("hashchange", () => {
  showPanel(true);
  scrollTo(0, 0);
});
load();
