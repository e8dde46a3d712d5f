// What the visitor has typed and chosen. Choices survive a reload; without storage the page works all the same.

const PREFIX = "firth.";

export function remember(key, value) {
  try {
    localStorage.setItem(PREFIX + key, value);
  } catch {
    // Storage is full or forbidden.
  }
}

export function recall(key) {
  try {
    return localStorage.getItem(PREFIX + key);
  } catch {
    return null;
  }
}

const panels = new Map();

/** The values of a panel's fields and its last result, kept while the page is open. */
export function panelState(id, defaults) {
  if (!panels.has(id)) panels.set(id, {values: {...defaults}, result: undefined});
  return panels.get(id);
}
