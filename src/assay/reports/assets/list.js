// The list of samples. Only the rows in view exist, so that twelve thousand cost no more than forty.

const ROW_HEIGHT = 24;
const SPARE_ROWS = 6;
const SIGNS = { right: "✓", wrong: "✗", between: "~", none: "·" };
const FLIPS = { lost: "▼", gained: "▲" };

class SampleList {
  constructor(place, samples, selected) {
    this.place = place;
    this.samples = samples;
    this.selected = selected;
    this.height = place.querySelector("#height");
    this.holder = place.querySelector("#rows");
    this.numbers = [];
    this.key = "";
    this.current = -1;
    place.parentElement.classList.toggle("several-tasks", samples.tasks.length > 1);
    this.prefix = commonPrefix(samples.tasks.map(({ name }) => name));
    let painting = false;
    place.addEventListener("scroll", () => {
      if (painting) return;
      painting = true;
      requestAnimationFrame(() => {
        painting = false;
        this.paint();
      });
    });
    this.holder.addEventListener("click", (event) => {
      const row = event.target.closest("[data-position]");
      if (row) this.select(Number(row.dataset.position));
    });
    new ResizeObserver(() => this.paint()).observe(place);
  }

  // Lists these samples; the selected one stays selected if it is among them.
  show(numbers, key) {
    const number = this.numbers[this.current];
    this.numbers = numbers;
    this.key = key;
    this.current = number === undefined ? -1 : numbers.indexOf(number);
    this.height.style.height = `${numbers.length * ROW_HEIGHT}px`;
    this.holder.style.transform = ""; // else the old rows' place would keep the list scrollable that far
    if (this.current < 0) this.place.scrollTop = 0;
    else this.reveal(this.current);
    this.paint();
  }

  reveal(position) {
    const top = position * ROW_HEIGHT;
    const { scrollTop, clientHeight } = this.place;
    if (top < scrollTop + ROW_HEIGHT) this.place.scrollTop = top - ROW_HEIGHT;
    else if (top + 2 * ROW_HEIGHT > scrollTop + clientHeight) this.place.scrollTop = top + 2 * ROW_HEIGHT - clientHeight;
  }

  // Selects by position in the list, and tells which sample that is.
  select(position) {
    if (position < 0 || position >= this.numbers.length) return;
    this.current = position;
    this.reveal(position);
    this.paint();
    this.selected(this.numbers[position]);
  }

  step(by) {
    this.select(this.current < 0 ? 0 : Math.min(this.numbers.length - 1, Math.max(0, this.current + by)));
  }

  clear() {
    this.current = -1;
    this.paint();
  }

  paint() {
    const count = Math.ceil(this.place.clientHeight / ROW_HEIGHT) + 2 * SPARE_ROWS;
    const wanted = Math.floor(this.place.scrollTop / ROW_HEIGHT) - SPARE_ROWS;
    const first = Math.max(0, Math.min(wanted, this.numbers.length - count));
    const last = Math.min(this.numbers.length, first + count);
    while (this.holder.children.length < last - first) this.holder.append(emptyRow());
    while (this.holder.children.length > last - first) this.holder.lastChild.remove();
    this.holder.style.transform = `translateY(${first * ROW_HEIGHT}px)`;
    for (let position = first; position < last; position++) {
      this.fill(this.holder.children[position - first], position);
    }
  }

  fill(line, position) {
    const row = this.samples.row(this.numbers[position], this.key);
    const verdict = verdictOf(row.score);
    const isCurrent = position === this.current;
    line.dataset.position = position;
    line.className = `row ${verdict}${isCurrent ? " current" : ""}`;
    line.setAttribute("aria-selected", String(isCurrent));
    const [sign, flip, task, doc, extracted, target, outcome] = line.children;
    sign.textContent = SIGNS[verdict];
    flip.textContent = FLIPS[row.flip] ?? "";
    flip.className = `flip ${row.flip}`;
    task.textContent = labelled(row.task.slice(this.prefix));
    doc.textContent = row.doc;
    extracted.textContent = labelled(row.extracted);
    target.textContent = labelled(row.target);
    outcome.textContent = row.outcome === "answered" ? "" : row.outcome;
    outcome.className = `outcome ${row.outcome}`;
  }
}

// Length of what all names begin with, up to an underscore: said once is enough.
function commonPrefix(names) {
  if (names.length < 2) return 0;
  let length = 0;
  while (length < names[0].length && names.every((name) => name[length] === names[0][length])) length++;
  return names[0].lastIndexOf("_", length - 1) + 1;
}

function emptyRow() {
  const cells = ["sign", "flip", "task", "doc", "extracted", "target", "outcome"];
  return element("div", { class: "row", role: "option" }, ...cells.map((name) => element("span", { class: name })));
}
