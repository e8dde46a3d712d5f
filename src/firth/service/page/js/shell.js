// What all panels share: heading, form, examples, running and stopping, errors, and the code for the same request.

import {hasKey} from "./api.js";
import {h, languageOf} from "./dom.js";
import {t} from "./i18n.js";
import {asCurl, asPython} from "./snippets.js";
import {panelState} from "./store.js";

const PAUSE = 500; // milliseconds without typing before a live panel asks

/**
 * Builds a panel from its description:
 * id; models (those that it can use); defaults; examples (per language, {label, values});
 * fields(tools) -> elements; ask(values, signal, progress) -> result; show(result, tools) -> elements;
 * calls(values) -> the requests behind it; live: whether typing is enough; stops: whether it has a stop button.
 */
export function buildPanel(spec, context) {
  const state = panelState(spec.id, spec.defaults(spec.models));
  const view = new PanelView(spec, state, context);
  return view.root;
}

class PanelView {
  constructor(spec, state, context) {
    Object.assign(this, {spec, state, context});
    this.changed = () => this.onChange();
    this.output = h("div", {class: "results", "aria-busy": "false"});
    this.status = h("p", {class: "status", role: "status", "aria-live": "polite"});
    this.runButton = h("button", {class: "button primary", type: "submit"}, t(`${spec.id}.run`));
    this.stopButton = h("button", {class: "button", type: "button", hidden: true, on: {click: () => this.stop()}}, t("stop"));
    this.code = h("div", {});
    this.fields = h("div", {class: "fields"});
    this.form = h("form", {class: "card form", novalidate: true, on: {submit: (event) => this.submit(event)}},
      this.fields, this.examples(),
      h("div", {class: "actions"}, this.runButton, this.stopButton, this.status));
    const heading = `${spec.id}-heading`;
    this.root = h("section", {class: "panel", id: spec.id, "aria-labelledby": heading},
      h("h2", {id: heading}, t(`${spec.id}.title`)), h("p", {class: "lede"}, t(`${spec.id}.lede`)),
      this.form, this.output,
      h("section", {class: "code", "aria-label": t("code.title")}, h("h3", {}, t("code.title")), this.code));
    this.drawFields();
    this.draw();
    if (spec.live && state.result === undefined && !state.error) this.run();
  }

  drawFields() {
    this.fields.replaceChildren(...this.spec.fields(this).flat().filter(Boolean));
    this.drawCode();
  }

  examples() {
    const groups = Object.entries(this.spec.examples);
    if (!groups.length) return null;
    const buttons = groups.flatMap(([, list]) => list.map((example) => h("button",
      {type: "button", lang: languageOf(example.label), title: example.label, on: {click: () => this.pick(example.values)}}, example.label)));
    return h("div", {class: "examples"}, h("span", {}, t("examples")), buttons);
  }

  /** Fills in some values and runs. */
  pick(values) {
    Object.assign(this.state.values, structuredClone(values));
    this.drawFields();
    this.run();
  }

  onChange() {
    this.drawCode();
    clearTimeout(this.timer);
    if (!this.spec.live) return;
    this.stop();
    this.controller = undefined;
    this.output.setAttribute("aria-busy", "true"); // what is shown is no longer the answer
    this.timer = setTimeout(() => this.root.isConnected && this.run(), PAUSE);
  }

  submit(event) {
    event.preventDefault();
    this.run();
  }

  stop() {
    this.controller?.abort();
  }

  async run() {
    clearTimeout(this.timer);
    this.stop();
    const controller = new AbortController();
    this.controller = controller;
    this.busy(true);
    try {
      const progress = (result) => this.isCurrent(controller) && this.draw(result);
      const result = await this.spec.ask(structuredClone(this.state.values), controller.signal, progress);
      if (this.isCurrent(controller)) this.finish(result, undefined);
    } catch (error) {
      if (!this.isCurrent(controller)) return;
      if (error.name === "AbortError") this.busy(false);
      else this.finish(undefined, error);
    }
  }

  isCurrent(controller) {
    return this.controller === controller;
  }

  finish(result, error) {
    this.state.result = result;
    this.state.error = error;
    this.busy(false);
    this.draw();
    if (error?.status === 401) this.context.askKey();
  }

  busy(isBusy) {
    this.output.setAttribute("aria-busy", String(isBusy));
    this.runButton.disabled = isBusy && !this.spec.live;
    this.stopButton.hidden = !(isBusy && this.spec.stops);
    this.status.textContent = isBusy ? t("working") : "";
  }

  draw(partial) {
    const {error} = this.state;
    const result = partial ?? this.state.result;
    if (error && !partial) {
      this.output.replaceChildren(h("p", {class: "error", role: "alert"}, error.message));
    } else if (result !== undefined) {
      this.output.replaceChildren(...[this.spec.show(result, this)].flat(Infinity).filter(Boolean));
      if (!partial) this.status.textContent = this.spec.summary?.(result) ?? t("done");
    }
  }

  drawCode() {
    const [call] = this.spec.calls(structuredClone(this.state.values));
    const both = {curl: asCurl(call, location.origin, hasKey()), Python: asPython(call, location.origin, hasKey())};
    this.code.replaceChildren(...Object.entries(both).map(([name, text]) => codeBox(name, text)));
  }
}

function codeBox(name, text) {
  const button = h("button", {class: "button plain", type: "button", "aria-label": t("copy.label", {name})}, t("copy"));
  const pre = h("pre", {tabindex: "0", "aria-label": name}, h("code", {}, text));
  button.addEventListener("click", async () => {
    button.textContent = (await copy(text, pre)) ? t("copied") : t("copy.failed");
    setTimeout(() => (button.textContent = t("copy")), 1600);
  });
  return h("figure", {"data-code": name.toLowerCase()}, h("figcaption", {}, name, button), pre);
}

/** Copies a text; where the browser forbids it, selects it instead. */
async function copy(text, pre) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    getSelection().selectAllChildren(pre);
    return false;
  }
}
