// The texts whose contrast with their background is below WCAG's AA: 4.5, or 3 where the text is large.
(() => {
  const parse = (text) => (text.match(/[\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
  const linear = (part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = ([red, green, blue]) => 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue);
  const background = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const colour = parse(getComputedStyle(one).backgroundColor);
      if (colour[3] !== 0) return colour;
    }
    return [255, 255, 255];
  };
  const bad = [];
  for (const element of document.querySelectorAll("body *")) {
    const text = [...element.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
    const style = getComputedStyle(element);
    if (!text.length || !element.checkVisibility() || element.closest(":disabled, .hidden, noscript, option")) continue;
    const isSvg = element instanceof SVGElement;
    const [one, two] = [luminance(parse(isSvg ? style.fill : style.color)), luminance(background(element))];
    const ratio = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (isLarge ? 3 : 4.5)) bad.push(`${text[0].data.trim().slice(0, 30)}: ${ratio.toFixed(2)}`);
  }
  return bad;
})()
