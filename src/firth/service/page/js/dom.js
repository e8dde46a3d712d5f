// Elements as calls: h("p", {class: "note"}, "text"). Strings become text nodes, never HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (name === "style") {
      for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    } else if (name === "value" || name === "checked") {
      element[name] = value;
    } else {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
  element.append(...children.flat(Infinity).filter((one) => one !== undefined && one !== null && one !== false));
  return element;
}

export function h(tag, properties, ...children) {
  return fill(document.createElement(tag), properties, children);
}

export function svg(tag, properties, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

let lastId = 0;

/** An id that is used once, to tie a label to its field. */
export function uniqueId(name) {
  lastId += 1;
  return `${name}-${lastId}`;
}

/** The language of a text for fonts and line breaks: Chinese if it has Chinese characters. */
export function languageOf(text) {
  return /\p{Script=Han}/u.test(text) ? "zh-Hans" : "en";
}

/** Text in its own language. */
export function prose(tag, properties, text) {
  return h(tag, {...properties, lang: languageOf(text)}, text);
}

/** Makes many elements one stop of the Tab key: arrow keys move among them. */
export function roving(container, items) {
  items.forEach((item, index) => item.setAttribute("tabindex", index ? "-1" : "0"));
  container.addEventListener("keydown", (event) => {
    const way = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
    const next = items[items.indexOf(event.target) + way];
    if (!way || !next) return;
    event.preventDefault();
    event.target.setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus();
  });
}

/** A bar of a part of 1. */
export function bar(part) {
  const width = Number.isFinite(part) ? Math.min(Math.max(part, 0), 1) * 100 : 0;
  return h("span", {class: "bar", "aria-hidden": "true"}, h("i", {style: {"--part": `${width}%`}}));
}
