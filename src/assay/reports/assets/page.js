// Puts the parts together: theme, keys, addresses, links into the list.

const THEMES = ["light", "dark"];

function preferredTheme() {
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

function switchTheme(plots) {
  const root = document.documentElement;
  const now = root.dataset.theme ?? preferredTheme();
  root.dataset.theme = THEMES[1 - THEMES.indexOf(now)];
  plots.draw();
}

// Paper is white.
function printInLight(plots) {
  const root = document.documentElement;
  let chosen;
  addEventListener("beforeprint", () => {
    chosen = root.dataset.theme;
    root.dataset.theme = "light";
    plots.draw();
  });
  addEventListener("afterprint", () => {
    if (chosen) root.dataset.theme = chosen;
    else delete root.dataset.theme;
    plots.draw();
  });
}

function followAddress(samples, filters, list) {
  const [task, doc] = location.hash.slice(1).split("/");
  if (doc === undefined) return;
  let name = task;
  try {
    name = decodeURIComponent(task);
  } catch {
    return; // no address of a sample
  }
  const number = samples.number(name, doc);
  if (number < 0) return;
  if (list.numbers[list.current] === number) return;
  const position = list.numbers.indexOf(number);
  if (position >= 0) list.select(position);
  else filters.set({}).then(() => list.select(list.numbers.indexOf(number)));
  document.querySelector("#samples").scrollIntoView();
}

function onKey(event, { list, view, filters, plots }) {
  const typing = event.target.closest?.("input, select, textarea");
  const help = document.querySelector("#help");
  if (event.key === "Escape") {
    if (typing) typing.blur();
    else if (!help.open) {
      list.clear();
      view.clear();
      history.replaceState(null, "", "#samples");
    }
    return;
  }
  if (typing || event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  const inList = event.target === list.place;
  const actions = {
    j: () => list.step(1),
    k: () => list.step(-1),
    ...(inList && { ArrowDown: () => list.step(1), ArrowUp: () => list.step(-1) }),
    "/": () => filters.form.elements.text.select(),
    d: () => view.toggleDifference(),
    t: () => switchTheme(plots),
    "?": () => help.showModal(),
  };
  const action = actions[event.key];
  if (!action) return;
  event.preventDefault();
  if ("jk/".includes(event.key)) document.querySelector("#samples").scrollIntoView({ block: "nearest" });
  action();
}

async function start() {
  const index = await inflated(document.querySelector("#data").textContent);
  const samples = new Samples(index, [...document.querySelectorAll("script.texts")]);
  const plots = new Plots(index);
  const browser = document.querySelector("#browser");
  browser.hidden = samples.rows.length === 0;
  const view = new SampleView(document.querySelector("#sample"), samples);
  const list = new SampleList(document.querySelector("#list"), samples, (number) => {
    history.replaceState(null, "", samples.address(number));
    view.show(number, filters.key, filters.pattern);
  });
  const count = document.querySelector("#count");
  const filters = new Filters(document.querySelector("#filters"), samples, (numbers, note) => {
    list.show(numbers, filters.key);
    const of = `${numbers.length.toLocaleString("en")} of ${samples.rows.length.toLocaleString("en")}`;
    count.textContent = note ? `${of}, ${note}` : of;
  });
  view.clear();
  await filters.apply();
  followAddress(samples, filters, list);
  addEventListener("hashchange", () => followAddress(samples, filters, list));
  addEventListener("keydown", (event) => onKey(event, { list, view, filters, plots }));
  printInLight(plots);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plots.draw());
  document.querySelector("#theme").addEventListener("click", () => switchTheme(plots));
  document.querySelector("#keys").addEventListener("click", () => document.querySelector("#help").showModal());
  for (const link of document.querySelectorAll("a[href='#samples'][data-outcome], a[href='#samples'][data-flip], a[href='#samples'][data-score]")) {
    link.addEventListener("click", () => filters.set(link.dataset));
  }
  document.documentElement.dataset.ready = "yes";
}

start().catch((error) => {
  document.querySelector("#samples").append(
    element("p", { class: "warning" }, `The list of samples needs a browser of 2024 or later (${error}).`),
  );
  throw error;
});
