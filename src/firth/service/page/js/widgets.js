// Fields of panels. Each reads and writes one value of the panel's state and calls `changed` after the visitor edits it.

import {h, languageOf, uniqueId} from "./dom.js";
import {t} from "./i18n.js";

function field(label, id, control) {
  return h("div", {class: "field"}, h("label", {for: id}, label), control);
}

/** Several lines of text; Ctrl or Cmd with Enter runs the panel. */
export function textArea(state, name, label, changed, rows = 3) {
  const id = uniqueId(name);
  const area = h("textarea", {id, name, rows, spellcheck: "false", value: state.values[name] ?? ""});
  const typed = () => {
    state.values[name] = area.value;
    area.lang = languageOf(area.value);
  };
  typed();
  area.addEventListener("input", () => {
    typed();
    changed();
  });
  area.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      area.form.requestSubmit();
    }
  });
  return field(label, id, area);
}

/** One line of text, or a number if `limits` are given. */
export function input(state, name, label, changed, limits) {
  const id = uniqueId(name);
  const kind = limits ? {type: "number", inputmode: "decimal", ...limits} : {type: "text", class: "prose"};
  const line = h("input", {id, name, autocomplete: "off", spellcheck: "false", ...kind, value: state.values[name] ?? ""});
  line.addEventListener("input", () => {
    state.values[name] = limits ? (line.value === "" ? null : Number(line.value)) : line.value;
    changed();
  });
  return field(label, id, line);
}

function modelNote(model) {
  return model.recipe && model.recipe !== model.name ? model.recipe : "";
}

/** One model out of some. */
export function modelSelect(state, name, label, models, changed) {
  const id = uniqueId(name);
  if (!models.some((model) => model.id === state.values[name])) state.values[name] = models[0]?.id;
  const options = models.map((model) => {
    const note = modelNote(model);
    return h("option", {value: model.id}, note ? `${model.id} (${note})` : model.id);
  });
  const select = h("select", {id, name}, options);
  select.value = state.values[name];
  select.addEventListener("change", () => {
    state.values[name] = select.value;
    changed();
  });
  return field(label, id, select);
}

/** The models that were not fine-tuned, or all if there are no others. */
function pretrained(models) {
  const found = models.filter((model) => !model.task);
  return found.length ? found : models;
}

/** Any number of models, at least one. */
export function modelChips(state, name, models, changed, most = 4) {
  const known = new Set(models.map((model) => model.name));
  const kept = (state.values[name] ?? []).filter((one) => known.has(one));
  state.values[name] = kept.length ? kept : pretrained(models).slice(0, most).map((model) => model.name);
  const boxes = models.map((model) => {
    const box = h("input", {type: "checkbox", name, value: model.name, checked: state.values[name].includes(model.name)});
    box.addEventListener("change", () => {
      const chosen = models.map((one) => one.name).filter((one) => (one === model.name ? box.checked : state.values[name].includes(one)));
      if (!chosen.length) {
        box.checked = true; // the last one stays
        return;
      }
      state.values[name] = chosen;
      changed();
    });
    const note = modelNote(model);
    return h("label", {class: "chip"}, box, h("span", {}, model.name, note && h("small", {}, note)));
  });
  return h("fieldset", {class: "choices"}, h("legend", {}, t("models")), h("div", {}, boxes));
}

export function fieldRow(narrow, ...fields) {
  return h("div", {class: narrow ? "row narrow" : "row"}, fields);
}

/** A list of names with bars; `value` is the text beside a bar; `onPick` makes the names buttons, except fixed ones. */
export function bars(items, onPick) {
  return h("ol", {class: "bars"}, items.map(({name, part, value, best, isFixed}) => {
    const label = onPick && !isFixed
      ? h("button", {type: "button", lang: languageOf(name), on: {click: () => onPick(name)}}, name)
      : h("span", {lang: languageOf(name)}, name);
    const width = Number.isFinite(part) ? Math.min(Math.max(part, 0), 1) * 100 : 0;
    return h("li", {class: best ? "best" : undefined},
      h("span", {class: "name"}, label),
      h("span", {class: "bar", "aria-hidden": "true"}, h("i", {style: {"--part": `${width}%`}})),
      h("span", {class: "value"}, value));
  }));
}

/** A card with the answer of one model. */
export function modelCard(name, extras, ...children) {
  return h("article", {class: "card result", "aria-label": name}, h("header", {}, h("h3", {}, name), extras), children);
}

/** What each model could not read as it was given; `readings` are the parts of an answer that say so. */
export function noteEach(answers, readings) {
  const found = answers.flatMap((answer) => readings(answer).flatMap((reading) => {
    const name = answer.name;
    return [
      reading.unknown > 0 && t("note.unknown", {name, count: Number(reading.unknown)}),
      reading.truncated && t("note.truncated", {name}),
      reading.windowed && t("note.windowed", {name}),
    ];
  }));
  return [...new Set(found)].filter(Boolean).map((text) => h("p", {class: "note small"}, text));
}
