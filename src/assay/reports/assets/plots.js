// Plots, drawn by uPlot in the page's colours, again when those or the width change.

function colours() {
  const probe = document.body.appendChild(element("i"));
  const colour = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const names = ["ink", "dim", "line", "accent", "band", "good", "bad"];
  const found = Object.fromEntries(names.map((name) => [name, colour(name)]));
  probe.remove();
  return found;
}

function axes(paint, labels) {
  const font = `11px ${getComputedStyle(document.body).fontFamily}`;
  return labels.map((label, place) => ({
    label,
    labelSize: 18,
    labelFont: font,
    font,
    stroke: paint.dim,
    size: place ? 52 : 32,
    grid: { stroke: paint.line, width: 1, show: place === 1 },
    ticks: { stroke: paint.line, width: 1, size: 4 },
  }));
}

function level(value, paint, text) {
  return (plot) => {
    const y = Math.round(plot.valToPos(value, "y", true));
    const { ctx, bbox } = plot;
    if (y < bbox.top || y > bbox.top + bbox.height) return;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = paint.ink;
    ctx.setLineDash([5, 4]);
    ctx.lineWidth = devicePixelRatio;
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(bbox.left + bbox.width, y);
    ctx.stroke();
    ctx.font = `${11 * devicePixelRatio}px ${getComputedStyle(document.body).fontFamily}`;
    ctx.textAlign = "left";
    ctx.textBaseline = "bottom";
    ctx.fillText(text, bbox.left + 4 * devicePixelRatio, y - 2 * devicePixelRatio);
    ctx.restore();
  };
}

// Where no pointer is, the legend has the last values: on paper, too.
function lastValues(plot) {
  if (plot.cursor.idx === null || plot.cursor.idx === undefined) plot.setLegend({ idx: plot.data[0].length - 1 }, false);
}
const restingLegend = { ready: [lastValues], setCursor: [lastValues] };

// Round numbers on a logarithmic axis: 1, 2, 5 and their tenfolds; evenly spaced ones where those are fewer than three.
function roundNumbers(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
    found.push(...[1, 2, 5].map((factor) => Number((factor * 10 ** power).toPrecision(6))));
  }
  const inside = found.filter((number) => number >= low && number <= high);
  if (inside.length > 7) return inside.filter((number) => Number.isInteger(Math.log10(number)));
  return inside.length > 2 ? inside : evenNumbers(low, high, 5);
}

function evenNumbers(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const first = Math.ceil(low / step);
  const places = Math.max(0, Math.floor(high / step) - first + 1);
  return Array.from({ length: places }, (_, place) => Number(((first + place) * step).toPrecision(6)));
}

const all = (plot, splits) => splits;

const fixed = (digits) => (plot, value) => (value === null || value === undefined ? "–" : value.toFixed(digits));
const whole = { label: "documents", value: (plot, value) => (value === null ? "–" : String(value)) };

function coursePlot(one, paint) {
  const course = one.course;
  const held = one.is_difference ? "margin" : "threshold";
  return {
    data: [course.seen, course.estimate, course.low, course.high],
    height: 220,
    scales: { x: { time: false } },
    axes: axes(paint, ["documents", one.is_difference ? "difference" : "score"]),
    series: [
      whole,
      { label: one.is_difference ? "difference" : "score", stroke: paint.accent, width: 1.5, value: fixed(4), points: { show: false } },
      { label: "low", stroke: paint.band, width: 1, value: fixed(4), points: { show: false } },
      { label: "high", stroke: paint.band, width: 1, value: fixed(4), points: { show: false } },
    ],
    bands: [{ series: [3, 2], fill: paint.band }],
    hooks: { ...restingLegend, draw: [level(course.threshold, paint, `${held} ${Number(course.threshold.toPrecision(6))}`)] },
  };
}

function wealthPlot(one, paint) {
  const course = one.course;
  const decides = Math.log10(1 / course.alpha);
  const least = Math.min(...course.for_pass, ...course.for_fail);
  const odds = (plot, value) => (value === null || value === undefined ? "–" : (10 ** value).toPrecision(3));
  return {
    data: [course.seen, course.for_pass, course.for_fail],
    height: 150,
    scales: { x: { time: false }, y: { range: [Math.max(-decides, Math.min(least, -0.2)), decides * 1.3] } },
    axes: axes(paint, ["documents", "evidence"]).map((axis, place) =>
      place ? { ...axis, splits: (plot, number, low, high) => wholeNumbers(low, high), values: (plot, ticks) => ticks.map((tick) => `10${superscript(tick)}`) } : axis,
    ),
    series: [
      whole,
      { label: "for pass", stroke: paint.good, width: 1.5, value: odds, points: { show: false } },
      { label: "for fail", stroke: paint.bad, width: 1.5, value: odds, points: { show: false } },
    ],
    hooks: { ...restingLegend, draw: [level(decides, paint, "decides")] },
  };
}

function wholeNumbers(low, high) {
  return evenNumbers(low, high, 5).filter(Number.isInteger);
}

function superscript(number) {
  return String(number).replace(/[-\d]/g, (sign) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(sign)]);
}

function histogramPlot(bins, paint, unit) {
  const counts = [...bins.counts, bins.counts.at(-1)];
  return {
    data: [bins.edges, counts],
    height: 150,
    legend: { show: false },
    scales: { x: { time: false, distr: 3, range: () => [bins.edges[0], bins.edges.at(-1)] }, y: { range: (plot, low, high) => [0, high * 1.05] } },
    axes: axes(paint, [unit, "answers"]).map((axis, place) =>
      place
        ? axis
        : {
            ...axis,
            splits: (plot, number, low, high) => roundNumbers(low, high),
            values: (plot, ticks) => ticks.map((tick) => tick.toLocaleString("en", { maximumSignificantDigits: 6 })),
            filter: all,
            ticks: { ...axis.ticks, filter: all },
          },
    ),
    series: [
      { label: unit, value: (plot, value) => (value === null ? "–" : String(Number(value.toPrecision(3)))) },
      {
        label: "answers",
        stroke: paint.accent,
        fill: paint.band,
        width: 1,
        paths: uPlot.paths.stepped({ align: 1 }),
        points: { show: false },
      },
    ],
  };
}

function ratePlot(rate, paint) {
  return {
    data: [rate.seconds, rate.rate],
    height: 150,
    legend: { show: false },
    scales: { x: { time: false }, y: { range: (plot, low, high) => [0, high * 1.05] } },
    axes: axes(paint, ["seconds since the first answer", "answers a second"]),
    series: [
      { label: "seconds", value: fixed(1) },
      { label: "answers a second", stroke: paint.accent, fill: paint.band, width: 1, value: fixed(2), points: { show: false } },
    ],
  };
}

class Plots {
  constructor(index) {
    this.index = index;
    this.places = [...document.querySelectorAll("[data-plot]")];
    this.drawn = [];
    let width = 0;
    new ResizeObserver(([entry]) => {
      if (entry.contentRect.width === width) return;
      width = entry.contentRect.width;
      this.draw();
    }).observe(document.querySelector("main"));
  }

  draw() {
    for (const plot of this.drawn) plot.destroy();
    const paint = colours();
    this.drawn = this.places.map((place) => {
      const { data, ...options } = this.options(place.dataset, paint);
      return new uPlot({ width: place.clientWidth, cursor: { drag: { x: false, y: false }, y: false }, ...options }, data, place);
    });
  }

  options({ plot, number }, paint) {
    const { evidence, plots } = this.index;
    if (plot === "course") return coursePlot(evidence[number], paint);
    if (plot === "wealth") return wealthPlot(evidence[number], paint);
    if (plot === "rate") return ratePlot(plots.rate, paint);
    return histogramPlot(plots[plot], paint, plot === "latency" ? "seconds" : "tokens");
  }
}
