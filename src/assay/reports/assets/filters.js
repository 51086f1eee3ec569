// Which samples are listed: the choices above the list, and the search through their texts.

const SLICE = 12; // milliseconds of searching between two breaths of the page

class Filters {
  constructor(form, samples, changed) {
    this.form = form;
    this.samples = samples;
    this.changed = changed;
    this.searches = 0;
    this.pattern = null;
    this.fill();
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("change", () => this.apply());
    let waiting = 0;
    form.elements.text.addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => this.apply(), 150);
    });
  }

  fill() {
    const { task, outcome } = this.form.elements;
    const option = (value, text) => element("option", { value, textContent: labelled(text) });
    task.append(option("", "all"), ...this.samples.tasks.map(({ name }) => option(name, name)));
    outcome.append(option("", "any"), ...this.samples.outcomes.map((name) => option(name, name)));
    task.parentElement.hidden = this.samples.tasks.length < 2;
    this.fillKeys();
  }

  fillKeys() {
    const { task, key } = this.form.elements;
    const chosen = key.value;
    const tasks = this.samples.tasks.filter(({ name }) => !task.value || name === task.value);
    const keys = [...new Set(tasks.flatMap((one) => one.keys))];
    const own = tasks.length === 1 ? (tasks[0].keys[tasks[0].chosen] ?? "none") : "each task's own";
    key.replaceChildren(
      element("option", { value: "", textContent: labelled(own) }),
      ...keys.filter((name) => name !== own).map((name) => element("option", { value: name, textContent: labelled(name) })),
    );
    key.value = keys.includes(chosen) && chosen !== own ? chosen : "";
  }

  get key() {
    return this.form.elements.key.value;
  }

  // Sets what a link in the report asks for; everything else is taken back.
  set(choices) {
    this.form.reset();
    for (const name of ["task", "outcome", "flip"]) {
      if (choices[name] && this.form.elements[name]) this.form.elements[name].value = choices[name];
    }
    this.fillKeys();
    if ([...this.form.elements.key.options].some(({ value }) => value === choices.key)) {
      this.form.elements.key.value = choices.key;
    }
    return this.apply();
  }

  async apply() {
    const search = ++this.searches;
    this.fillKeys();
    const { text } = this.form.elements;
    this.pattern = text.value ? literal(text.value) : null;
    const numbers = this.chosen();
    if (!this.pattern) return this.changed(numbers, "");
    const found = [];
    let paused = performance.now();
    for (const [place, number] of numbers.entries()) {
      if (await this.matches(number)) found.push(number);
      if (performance.now() - paused > SLICE) {
        this.changed(found, `searching ${Math.round((100 * place) / numbers.length)} %`);
        await new Promise((resume) => setTimeout(resume));
        paused = performance.now();
        if (search !== this.searches) return undefined;
      }
    }
    return search === this.searches ? this.changed(found, "") : undefined;
  }

  chosen() {
    const { task, outcome, score, flip, whole } = this.form.elements;
    const numbers = [];
    for (let number = 0; number < this.samples.rows.length; number++) {
      const row = this.samples.row(number, this.key);
      if (task.value && row.task !== task.value) continue;
      if (outcome.value && row.outcome !== outcome.value) continue;
      if (score.value && verdictOf(row.score) !== score.value) continue;
      if (flip?.value && !(flip.value === "either" ? row.flip : row.flip === flip.value)) continue;
      if (whole?.checked && !this.samples.isWhole(number)) continue;
      numbers.push(number);
    }
    return numbers;
  }

  async matches(number) {
    const texts = this.samples.textsAtHand(number) ?? (await this.samples.texts(number));
    const said = texts.answers.flatMap((answer) => [answer.text, answer.reasoning]);
    const asked = texts.prompts.flatMap(({ turns, continuation }) => [turns.at(-1)?.text, continuation]);
    const extracted = Object.values(texts.filters).map(([text]) => text);
    const all = [...said, ...asked, ...extracted, texts.target, ...(texts.before ?? []), texts.failure?.[1]];
    return all.some((text) => includes(text, this.pattern));
  }
}

function verdictOf(score) {
  if (score === null) return "none";
  return score === 1 ? "right" : score === 0 ? "wrong" : "between";
}
