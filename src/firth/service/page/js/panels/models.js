// What is served, and what could be.

import {h} from "../dom.js";
import {t} from "../i18n.js";

export function modelsPanel(models, missing) {
  const rows = models.map((model) => h("tr", {},
    h("th", {scope: "row"}, model.name), h("td", {}, model.recipe ?? "–"), h("td", {}, model.task ?? model.kind ?? "–"),
    h("td", {}, [...model.abilities].join(", ")), h("td", {}, h("code", {title: model.digest}, (model.digest ?? "").replace("sha256:", "").slice(0, 12)))));
  const heads = ["name", "recipe", "kind", "abilities", "digest"].map((name) => h("th", {scope: "col"}, t(`about.${name}`)));
  return h("section", {class: "panel", id: "models", "aria-labelledby": "models-heading"},
    h("h2", {id: "models-heading"}, t("about.title")), h("p", {class: "lede"}, t("about.lede")),
    h("div", {class: "card scroll", tabindex: "0", role: "region", "aria-label": t("about.title")},
      h("table", {}, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, rows))),
    missing.length > 0 && h("div", {class: "results"}, h("div", {class: "card"}, h("h3", {}, t("about.missing")),
      h("ul", {class: "missing"}, missing.map((panel) => h("li", {}, h("b", {}, t(`${panel.id}.nav`)), " ", h("span", {class: "quiet"}, t(`${panel.id}.needs`))))))));
}
