// The filter of the index: rows that hold every word stay.

const rows = [...document.querySelectorAll(".runs tbody tr")].map((row) => [row, row.textContent.toLowerCase()]);
const filter = document.querySelector("#filter");
const count = document.querySelector("#count");

function narrow() {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const [row, text] of rows) {
    row.hidden = !words.every((word) => text.includes(word));
    shown += row.hidden ? 0 : 1;
  }
  count.textContent = `${shown.toLocaleString("en")} of ${rows.length.toLocaleString("en")} scores`;
}

filter.disabled = false;
filter.addEventListener("input", narrow);
narrow();
document.documentElement.dataset.ready = "yes";
