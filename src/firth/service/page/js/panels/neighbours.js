// The nearest words, as a list and as a map.

import {post} from "../api.js";
import {h, languageOf, roving, svg} from "../dom.js";
import {language, number, t} from "../i18n.js";
import {project} from "../projection.js";
import {bars, input, modelSelect} from "../widgets.js";
import {textExamples} from "./common.js";

const EXAMPLES = {en: ["government", "football", "river"], zh: ["音乐", "大学", "苹果"]};
const COUNT = 30;
const LISTED = 12;
const WIDE = {width: 720, height: 480};
const NARROW = {width: 400, height: 440};
const LINE = 21; // height of a label
const GAP = 10; // from the middle of a dot to its label

export const neighbours = {
  id: "neighbours",
  group: "vectors",
  live: true,
  can: (model) => model.abilities.has("similar"),
  defaults: () => ({word: EXAMPLES[language()][0]}),
  examples: textExamples(EXAMPLES, "word"),

  fields({state, changed, spec}) {
    return [h("div", {class: "row"}, input(state, "word", t("word"), changed), modelSelect(state, "model", t("model"), spec.models, changed))];
  },

  calls({model, word}) {
    return [{path: "/similar", body: {model: model ?? this.models[0].name, word, count: COUNT, vectors: true}}];
  },

  async ask(values, signal) {
    if (!values.word.trim()) return {word: "", neighbours: []};
    const [call] = this.calls(values);
    return {...(await post(call.path, call.body, signal)), word: values.word};
  },

  show(answer, view) {
    const {word, neighbours: found} = answer;
    if (!found.length) return [];
    const pick = (one) => view.pick({word: one});
    const list = bars(found.slice(0, LISTED).map((one) => ({name: one.word, part: one.score, value: number(one.score)})), pick);
    const hasMap = answer.vector && found.every((one) => one.vector);
    return [
      h("article", {class: "card near"}, h("div", {}, h("h3", {class: "small quiet"}, t("neighbours.list")), list),
        hasMap && h("figure", {}, drawMap(word, answer, pick), h("figcaption", {class: "small quiet"}, t("neighbours.map")))),
    ];
  },

  summary: ({neighbours: found}) => found.slice(0, 3).map((one) => one.word).join(", "),
};

function drawMap(word, {vector, neighbours: found}, pick) {
  const spots = project([vector, ...found.map((one) => one.vector)]);
  const points = spots.map((spot, index) => ({...spot, word: index ? found[index - 1].word : word, isCentre: index === 0}));
  const size = matchMedia("(max-width: 40rem)").matches ? NARROW : WIDE;
  const at = scaleOf(points, size);
  const taken = points.map(at).map(({x, y}) => ({left: x - 6, top: y - 6, width: 12, height: 12})); // labels cover no dot
  const dots = points.map((point) => dot(point, at(point), {taken, size, pick}));
  const map = svg("svg", {class: "map", viewBox: `0 0 ${size.width} ${size.height}`, role: "group", "aria-label": t("neighbours.map.label", {word})}, [...dots].reverse());
  roving(map, dots);
  return map;
}

/** Fits the points into the map with one scale for both axes. */
function scaleOf(points, {width, height}) {
  const range = (name) => [Math.min(...points.map((one) => one[name])), Math.max(...points.map((one) => one[name]))];
  const [[left, right], [low, high]] = [range("x"), range("y")];
  const scale = Math.min((0.74 * width) / (right - left || 1), (height - 70) / (high - low || 1));
  return ({x, y}) => ({
    x: 0.46 * width + (x - (left + right) / 2) * scale,
    y: height / 2 - (y - (low + high) / 2) * scale,
  });
}

/** A dot with its label where there is space; a label that fits nowhere is shown when its dot is pointed at. */
function dot(point, {x, y}, {taken, size, pick}) {
  const width = labelWidth(point.word);
  const spots = [
    {left: x + GAP, top: y - LINE / 2}, {left: x - GAP - width, top: y - LINE / 2},
    {left: x - width / 2, top: y - GAP - LINE}, {left: x - width / 2, top: y + GAP},
  ];
  const inside = ({left, top}) => left >= 4 && left + width <= size.width - 4 && top >= 2 && top + LINE <= size.height - 2;
  const free = spots.find((spot) => inside(spot) && !taken.some((box) => overlaps(box, spot, width)));
  const spot = free ?? spots[0];
  if (free) taken.push({...spot, width});
  const names = [point.isCentre && "centre", !free && "crowded"].filter(Boolean).join(" ");
  const choose = () => pick(point.word);
  const onKey = (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    choose();
  };
  return svg("g", {class: names, role: "button", "aria-label": point.word, lang: languageOf(point.word), on: {click: choose, keydown: onKey}},
    svg("circle", {cx: x, cy: y, r: point.isCentre ? 7 : 5}),
    svg("text", {x: spot.left, y: spot.top + LINE - 6}, point.word));
}

function labelWidth(word) {
  return Array.from(word).reduce((sum, one) => sum + (/\p{Script=Han}/u.test(one) ? 17.5 : 9.2), 4);
}

function overlaps(box, spot, width) {
  return box.left < spot.left + width && spot.left < box.left + box.width && box.top < spot.top + LINE && spot.top < box.top + (box.height ?? LINE);
}
