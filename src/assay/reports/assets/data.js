// The page's data: JSON, deflated, in base64, in elements that nothing executes.

async function inflated(base64) {
  const binary = atob(base64);
  const bytes = new Uint8Array(binary.length);
  for (let place = 0; place < binary.length; place++) bytes[place] = binary.charCodeAt(place);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
}

// Rows of all samples, and their texts, which are inflated chunk by chunk when they are needed.
class Samples {
  constructor(index, chunks) {
    this.tasks = index.tasks;
    this.rows = index.rows;
    this.references = index.references;
    this.outcomes = index.outcomes;
    this.firsts = index.firsts;
    this.whole = index.whole;
    this.chunks = chunks;
    this.inflated = chunks.map(() => null);
    this.taskNumbers = new Uint16Array(this.rows.length);
    this.tasks.forEach((task, number) => this.taskNumbers.fill(number, task.first, task.first + task.count));
  }

  task(number) {
    return this.tasks[this.taskNumbers[number]];
  }

  // What the list shows of a sample. `key`: the metric that counts; empty for the task's own.
  row(number, key) {
    const task = this.task(number);
    const [doc, target, filters, scores, flips] = this.rows[number];
    const place = key ? task.keys.indexOf(key) : task.chosen;
    const metric = task.keys[place] ?? "";
    const filter = filters[task.filters.indexOf(metric.slice(metric.indexOf(",") + 1))] ?? null;
    return {
      task: task.name,
      doc,
      target,
      extracted: filter ? filter[0] : "",
      outcome: filter ? this.outcomes[filter[1]] : filters.some(Boolean) ? "" : "failed",
      score: scores[place] ?? null,
      flip: flips?.[metric] ?? "",
    };
  }

  number(task, doc) {
    const found = this.tasks.find((one) => one.name === task);
    if (!found) return -1;
    for (let number = found.first; number < found.first + found.count; number++) {
      if (String(this.rows[number][0]) === doc) return number;
    }
    return -1;
  }

  address(number) {
    return `#${encodeURIComponent(this.task(number).name)}/${this.rows[number][0]}`;
  }

  chunkOf(number) {
    let low = 0;
    let high = this.firsts.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.firsts[middle] <= number) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  async texts(number) {
    const chunk = this.chunkOf(number);
    this.inflated[chunk] ??= await inflated(this.chunks[chunk].textContent);
    return this.textsAtHand(number);
  }

  // Null until the sample's chunk has been inflated.
  textsAtHand(number) {
    const chunk = this.chunkOf(number);
    const entries = this.inflated[chunk];
    return entries && this.unfold(number, entries[number - this.firsts[chunk]]);
  }

  isWhole(number) {
    return this.whole === "" || this.whole[number] === "1";
  }

  // An entry with its prompts whole, as lists of {role, text}, and with what only the sample's row says.
  unfold(number, entry) {
    const reference = this.references[this.taskNumbers[number]];
    const prompts = [];
    for (const [turns, continuation] of entry.p) {
      prompts.push({ turns: turns ? unfolded(turns, reference) : prompts.at(-1).turns, continuation });
    }
    return {
      prompts,
      common: this.task(number).common ?? 0,
      answers: entry.a,
      target: entry.t ?? this.rows[number][1],
      filters: this.filters(number, entry.f ?? {}),
      failure: entry.x,
      before: entry.b,
    };
  }

  // By filter [extracted, {metric: score}].
  filters(number, found) {
    const task = this.task(number);
    const [, , filters, scores] = this.rows[number];
    const all = {};
    task.filters.forEach((name, place) => {
      if (!filters[place]) return;
      const keys = task.keys.filter((key, at) => key.endsWith(`,${name}`) && scores[at] != null);
      const metrics = keys.map((key) => [key.slice(0, -name.length - 1), scores[task.keys.indexOf(key)]]);
      all[name] = found[name] ?? [filters[place][0], Object.fromEntries(metrics)];
    });
    return all;
  }
}

// A prompt's turns, whole: so many are the reference's, and of the others that much of the text.
function unfolded([equal, ...others], reference) {
  const turns = reference.slice(0, equal).map(([role, text]) => ({ role, text }));
  for (const [role, shared, text] of others) {
    const start = shared ? reference[turns.length][1].slice(0, shared) : "";
    turns.push({ role, text: joined(start, text) });
  }
  return turns;
}

// A text in the data is a string, or [start, number of characters left out, end].
function joined(start, text) {
  return typeof text === "string" ? start + text : [start + text[0], text[1], text[2]];
}

function lengthOf(text) {
  return typeof text === "string" ? text.length : text[0].length + text[1] + text[2].length;
}

function includes(text, pattern) {
  if (text == null) return false;
  return typeof text === "string" ? pattern.test(text) : pattern.test(text[0]) || pattern.test(text[2]);
}
