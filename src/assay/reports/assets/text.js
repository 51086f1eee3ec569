// Text from models and servers becomes text nodes, never markup; what hides or reorders text is shown as its code.

const HIDDEN = /[\p{C}\p{Zl}\p{Zp}\u00a0\u1680\u2000-\u200a\u202f\u205f]/gu;
const KEPT = new Set(["\n", "\t"]);

function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class") made.className = value;
    else if (name === "data") Object.assign(made.dataset, value);
    else made[name] = value;
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function codeOf(character) {
  return `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
}

// Nodes for a text, `marks` being [start, end] ranges in it to highlight, in order.
function shown(text, marks = []) {
  const fragment = document.createDocumentFragment();
  let from = 0;
  for (const [start, end] of marks) {
    if (start < from) continue;
    appendVisible(fragment, text.slice(from, start));
    const mark = element("mark");
    appendVisible(mark, text.slice(start, end));
    fragment.append(mark);
    from = end;
  }
  appendVisible(fragment, text.slice(from));
  return fragment;
}

function appendVisible(parent, text) {
  let from = 0;
  for (const found of text.matchAll(HIDDEN)) {
    if (KEPT.has(found[0])) continue;
    if (found.index > from) parent.append(text.slice(from, found.index));
    parent.append(element("span", { class: "hidden-character" }, codeOf(found[0])));
    from = found.index + found[0].length;
  }
  if (from < text.length) parent.append(text.slice(from));
}

// The same in one line, for cells.
function labelled(text) {
  const line = text.replace(/\s+/g, " ");
  return line.replace(HIDDEN, codeOf);
}

// A block for a text of the data, which may be cut. `find`: a pattern whose finds are marked; `last`: only the last one.
function textBlock(text, { find = null, last = null } = {}) {
  const block = element("div", { class: "text", dir: "ltr" });
  if (text === null || text === undefined) return element("div", { class: "text dim" }, "null");
  if (text === "") return element("div", { class: "text dim" }, "(empty)");
  const parts = typeof text === "string" ? [text] : [text[0], text[2]];
  parts.forEach((part, place) => {
    if (place === 1) {
      block.append(element("span", { class: "left-out" }, `… ${text[1].toLocaleString("en")} characters left out …`));
    }
    block.append(shown(part, ranges(part, find, place === parts.length - 1 ? last : null)));
  });
  return block;
}

const MOST_MARKS = 1000;

function ranges(text, find, last) {
  if (find) {
    const found = [];
    for (const match of text.matchAll(new RegExp(find.source, "gi"))) {
      if (match[0]) found.push([match.index, match.index + match[0].length]);
      if (found.length >= MOST_MARKS) break;
    }
    return found;
  }
  const start = last ? text.lastIndexOf(last) : -1;
  return start < 0 ? [] : [[start, start + last.length]];
}

function literal(text) {
  return new RegExp(text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "i");
}

const MOST_CELLS = 4_000_000;

// Word by word: a list of [kind, text], kind being "same", "gone" or "new".
function difference(before, after) {
  const words = (text) => text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) ?? [];
  const old = words(before);
  const now = words(after);
  let start = 0;
  while (start < old.length && start < now.length && old[start] === now[start]) start++;
  let end = 0;
  while (end < old.length - start && end < now.length - start && old.at(-1 - end) === now.at(-1 - end)) end++;
  const middle = changed(old.slice(start, old.length - end), now.slice(start, now.length - end));
  return merged([
    ["same", old.slice(0, start).join("")],
    ...middle,
    ["same", old.slice(old.length - end).join("")],
  ]);
}

// By the longest common subsequence; where that would take too long, all is gone and all is new.
function changed(old, now) {
  if (old.length * now.length > MOST_CELLS) return [["gone", old.join("")], ["new", now.join("")]];
  const width = now.length + 1;
  const lengths = new Uint16Array((old.length + 1) * width);
  for (let i = old.length - 1; i >= 0; i--) {
    for (let j = now.length - 1; j >= 0; j--) {
      const place = i * width + j;
      lengths[place] =
        old[i] === now[j] ? lengths[place + width + 1] + 1 : Math.max(lengths[place + width], lengths[place + 1]);
    }
  }
  const parts = [];
  let i = 0;
  let j = 0;
  while (i < old.length && j < now.length) {
    if (old[i] === now[j]) {
      parts.push(["same", old[i++]]);
      j++;
    } else if (lengths[(i + 1) * width + j] >= lengths[i * width + j + 1]) parts.push(["gone", old[i++]]);
    else parts.push(["new", now[j++]]);
  }
  return [...parts, ["gone", old.slice(i).join("")], ["new", now.slice(j).join("")]];
}

function merged(parts) {
  const whole = [];
  for (const [kind, text] of parts) {
    if (!text) continue;
    if (whole.at(-1)?.[0] === kind) whole.at(-1)[1] += text;
    else whole.push([kind, text]);
  }
  return whole;
}
