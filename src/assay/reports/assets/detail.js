// One sample: scores, prompt turn by turn, answers, and what the baseline answered.

const LEAST_FOLDED = 300;

class SampleView {
  constructor(place, samples) {
    this.place = place;
    this.samples = samples;
    this.asked = 0;
    this.asDifference = true;
    this.number = -1;
  }

  // Shows a sample; `find` is the pattern searched for.
  async show(number, key, find) {
    const asked = ++this.asked;
    const texts = await this.samples.texts(number);
    if (asked !== this.asked) return;
    [this.number, this.key, this.find] = [number, key, find];
    const row = this.samples.row(number, key);
    const parts = [
      this.heading(number, row),
      texts.failure ? null : scoreTable(texts),
      ...this.prompts(texts),
      ...this.answers(texts, row),
      ...this.before(texts),
    ];
    this.place.replaceChildren(...parts.filter(Boolean));
    this.place.scrollTop = 0;
    this.place.hidden = false;
  }

  clear() {
    this.asked++;
    this.number = -1;
    this.place.replaceChildren(element("p", { class: "dim" }, "Choose a sample, or press j."));
  }

  toggleDifference() {
    this.asDifference = !this.asDifference;
    if (this.number >= 0) this.show(this.number, this.key, this.find);
  }

  heading(number, row) {
    return element(
      "h3",
      {},
      element("a", { href: this.samples.address(number) }, `${labelled(row.task)}/${row.doc}`),
      element("span", { class: `outcome ${row.outcome}` }, row.outcome),
      row.flip ? element("span", { class: `flip ${row.flip}` }, `${FLIPS[row.flip]} ${row.flip}`) : null,
    );
  }

  prompts({ prompts, answers, common }) {
    if (!prompts.length) return [];
    const distinct = prompts.filter(({ turns }, place) => !place || turns !== prompts[place - 1].turns);
    const parts = distinct.flatMap(({ turns }) => this.turns(turns, common));
    const choices = prompts.some(({ continuation }) => continuation != null) ? [choiceTable(prompts, answers)] : [];
    return [element("h4", {}, "Prompt"), ...parts, ...choices];
  }

  // Everything before the last question is folded: with few-shot examples that is most of it.
  turns(turns, common) {
    const blocks = turns.map(({ role, text }, place) => this.turn(role, text, place === turns.length - 1 ? common : 0));
    const lastUser = turns.findLastIndex(({ role }) => role === "user");
    const from = turns[0]?.role === "system" ? 1 : 0;
    const until = lastUser < 0 ? 0 : lastUser;
    if (until - from < 2) return blocks;
    const folded = blocks.splice(from, until - from);
    const summary = element("summary", {}, `${folded.length} earlier turns`);
    blocks.splice(from, 0, element("details", { class: "folded" }, summary, ...folded));
    return blocks;
  }

  // `common`: how much of the text is in all of the task's prompts; examples, if it is long.
  turn(role, text, common) {
    const name = role ? element("span", { class: "role" }, labelled(role)) : null;
    const start = typeof text === "string" ? text : text[0];
    if (common < LEAST_FOLDED || common >= start.length) {
      return element("div", { class: `turn ${role ? "" : "plain"}` }, name, textBlock(text, { find: this.find }));
    }
    const rest = typeof text === "string" ? text.slice(common) : [start.slice(common), text[1], text[2]];
    const summary = element("summary", {}, `${common.toLocaleString("en")} characters that all prompts of the task begin with`);
    const folded = element("details", { class: "folded" }, summary, textBlock(start.slice(0, common)));
    const parts = element("div", {}, folded, textBlock(rest, { find: this.find }));
    return element("div", { class: `turn ${role ? "" : "plain"}` }, name, parts);
  }

  answers({ answers, failure, filters }, row) {
    if (failure && !answers.length) return [failureBlock(failure[0], failure[1])];
    const extracted = Object.values(filters).map(([text]) => text);
    const last = row.extracted && extracted.find((text) => typeof text === "string" && text.startsWith(row.extracted));
    return answers
      .filter((answer) => answer.logprob === undefined)
      .flatMap((answer, place, all) => this.answer(answer, all.length > 1 ? ` ${place + 1}` : "", last));
  }

  answer(answer, number, last) {
    if (answer.cause) return [failureBlock(answer.cause, answer.text, answer.attempts)];
    const title = element("h4", {}, `Answer${number}`, element("span", { class: "dim facts" }, factsOf(answer)));
    const reasoning = answer.reasoning
      ? element(
          "details",
          { class: "folded", open: Boolean(this.find && includes(answer.reasoning, this.find)) },
          element("summary", {}, `reasoning, ${lengthOf(answer.reasoning).toLocaleString("en")} characters`),
          textBlock(answer.reasoning, { find: this.find }),
        )
      : null;
    return [title, reasoning, textBlock(answer.text, { find: this.find, last })].filter(Boolean);
  }

  before({ before, answers }) {
    if (!before) return [];
    const [response, extracted] = before;
    const answer = answers.find(({ text }) => text !== undefined)?.text;
    const whole = typeof response === "string" && typeof answer === "string";
    const same = whole && response === answer;
    const title = element("h4", {}, "Baseline's answer", same ? element("span", { class: "dim facts" }, "the same") : null);
    if (same) return [title];
    const button = element("button", { type: "button" }, this.asDifference ? "whole (d)" : "difference (d)");
    button.addEventListener("click", () => this.toggleDifference());
    if (whole) title.append(button);
    const fact = element("p", { class: "dim" }, "extracted: ", element("span", { class: "text inline" }, shown(plainOf(extracted))));
    if (!whole || !this.asDifference) return [title, fact, textBlock(response, { find: this.find })];
    title.append(element("span", { class: "dim facts" }, "struck out: only the baseline said it; green: only this run"));
    return [title, fact, differenceBlock(response, answer)];
  }
}

function plainOf(text) {
  return typeof text === "string" ? text : `${text[0]}…${text[2]}`;
}

function scoreTable({ filters, target }) {
  const rows = Object.entries(filters).map(([name, [extracted, metrics]]) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, labelled(name)),
      element("td", {}, textBlock(extracted)),
      element("td", { class: "n" }, ...Object.entries(metrics).map(([metric, value]) => metricLine(metric, value))),
    ),
  );
  const gold = element("tr", {}, element("th", { scope: "row" }, "target"), element("td", { colSpan: 2 }, textBlock(target)));
  return element("table", { class: "scores" }, element("tbody", {}, ...rows, gold));
}

function metricLine(metric, value) {
  const text = Array.isArray(value) ? value.map((one) => (one ? "✓" : "✗")).join(" ") : String(value);
  const kind = Array.isArray(value) ? "between" : verdictOf(value);
  return element("div", { class: kind }, element("span", { class: "dim" }, `${labelled(metric)} `), text);
}

function choiceTable(prompts, answers) {
  const best = Math.max(...answers.map(({ logprob }) => logprob ?? -Infinity));
  const rows = prompts.map(({ continuation }, place) => {
    const { logprob, is_greedy: greedy, cause } = answers[place] ?? {};
    return element(
      "tr",
      { class: logprob === best ? "group" : "" },
      element("td", {}, textBlock(continuation)),
      element("td", { class: "n" }, cause ?? (logprob === undefined ? "–" : logprob.toFixed(3))),
      element("td", { class: "dim" }, greedy ? "greedy" : ""),
    );
  });
  const head = element("tr", {}, ...["continuation", "log-probability", ""].map((name) => element("th", {}, name)));
  return element("table", { class: "choices" }, element("thead", {}, head), element("tbody", {}, ...rows));
}

function failureBlock(cause, message, attempts) {
  const times = attempts > 1 ? ` after ${attempts} attempts` : "";
  return element("div", {}, element("h4", {}, `Failed: ${labelled(cause)}${times}`), textBlock(message));
}

function factsOf(answer) {
  const facts = [
    answer.finish_reason && `finish_reason ${labelled(answer.finish_reason)}`,
    answer.prompt_tokens !== undefined && `${answer.prompt_tokens.toLocaleString("en")} prompt tokens`,
    answer.completion_tokens !== undefined && `${answer.completion_tokens.toLocaleString("en")} completion tokens`,
    answer.latency && `${answer.latency.toPrecision(3)} s`,
    answer.ttft && `first token after ${answer.ttft.toPrecision(3)} s`,
    answer.endpoint && `from ${labelled(answer.endpoint)}`,
    answer.attempts && `${answer.attempts} attempts`,
    answer.model && `model ${labelled(answer.model)}`,
  ];
  return facts.filter(Boolean).join(" · ");
}

function differenceBlock(before, after) {
  const tags = { same: "span", gone: "del", new: "ins" };
  const parts = difference(before, after).map(([kind, text]) => element(tags[kind], {}, shown(text)));
  return element("div", { class: "text" }, ...parts);
}
