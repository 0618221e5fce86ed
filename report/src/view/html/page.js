// Page of a recording. The script adds up the weights of the stacks that it shows; all other numbers come with the data.
const numbers = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const grouped = (number) => numbers.format(number);
const weightText = (weight) => {
  if (data.unit !== "ns") return grouped(weight);
  if (weight >= 1e9) return (weight / 1e9).toFixed(3) + " s";
  return (weight / 1e6).toFixed(3) + " ms";
};
const percent = (part, whole) => (whole > 0 ? ((100 * part) / whole).toFixed(2) : "0.00") + " %";

list("notes", data.notes);
list("owners-legend", data.owners_legend);

// ---- Programs

const hidden = new Set();
const filter = () => $("find").value;
const drawPrograms = tableDrawer("table", data.table, {
  filter,
  hidden,
  fill: (cell, row, column, text) => {
    const key = data.keys[row];
    if (key === undefined || data.table.columns[column].name !== "PROGRAM") return false;
    const button = make("button", { type: "button", title: "Show it in the flame graph" }, text);
    button.addEventListener("click", () => focusProgram(key));
    cell.append(button);
    return true;
  },
});
data.table.columns.forEach((column, at) => {
  const box = make("input", { type: "checkbox" });
  box.checked = true;
  box.addEventListener("change", () => {
    box.checked ? hidden.delete(at) : hidden.add(at);
    drawPrograms();
  });
  $("columns").append(make("label", {}, box, " ", column.name));
});
const drawOthers = [["lines-table", data.lines], ["payers-table", data.payers], ["pairs-table", data.pairs], ["owners-table", data.owners]].map(([id, sheet]) => tableDrawer(id, sheet, { filter }));
$("find").addEventListener("input", () => {
  const rows = drawPrograms();
  $("matches").textContent = rows && `programs: ${rows}`;
  drawOthers.forEach((draw) => draw());
});

// ---- Code

// Makes the table of a function: a row for each source line, followed by the rows of its instructions while these are shown.
function functionTable(of) {
  const costs = (cells) => cells.map((cell) => make("td", { class: "number" }, cell));
  const rows = [];
  for (const line of of.lines) {
    const text = make("td", { class: "text" });
    const row = make("tr", {}, ...costs(line.cells), text);
    row.style.setProperty("--heat", `${line.percent}%`);
    rows.push(row);
    if (line.instructions.length === 0) {
      text.append(line.text);
      continue;
    }
    const below = () => line.instructions.map(([cells, code]) => make("tr", { class: "instruction" }, ...costs(cells), make("td", { class: "text" }, code)));
    let shown = $("code-all").checked ? below() : [];
    const button = make("button", { type: "button", "aria-expanded": String(shown.length > 0) }, line.text);
    button.addEventListener("click", () => {
      shown.forEach((instruction) => instruction.remove());
      shown = shown.length > 0 ? [] : below();
      row.after(...shown);
      button.setAttribute("aria-expanded", String(shown.length > 0));
    });
    text.append(button);
    rows.push(...shown);
  }
  const whole = [[of.cells, "(all of the function)"]];
  if (of.elsewhere) whole.unshift([of.elsewhere, "(at addresses that are in no line)"]);
  const head = [...data.code.columns, "LINE"].map((name, at) => make("th", { scope: "col", class: at < 4 ? "number" : "text" }, name));
  return make("table", { class: "code" },
    make("thead", {}, make("tr", {}, ...head)),
    make("tbody", {}, ...rows),
    make("tfoot", {}, ...whole.map(([cells, text]) => make("tr", {}, ...costs(cells), make("td", { class: "text" }, text)))),
  );
}

function drawCode() {
  const program = data.code.programs[$("code-program").selectedIndex];
  const { facts, functions } = program ?? { facts: ["No program has samples and code here."], functions: [] };
  $("code-facts").replaceChildren(...facts.map((fact) => make("li", {}, fact)));
  $("code-functions").replaceChildren(...functions.map((of) => make("details", { open: "" },
    make("summary", {}, `${of.name} · ${of.cells[1] === "" ? "no samples" : of.cells[1] + " %"}`),
    ...of.lacks.map((lack) => make("p", { class: "facts" }, lack)),
    make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Code of ${of.name}` }, functionTable(of)),
  )));
}
$("code-program").append(...data.code.programs.map(({ key }) => make("option", {}, key)));
$("code-notes").append(...data.code.notes.map((note) => make("li", {}, note)));
for (const id of ["code-program", "code-all"]) $(id).addEventListener("change", drawCode);

// Tables and code are drawn after the first screen, one at a time while the browser is idle, or all at once before the page is printed.
const waiting = [drawPrograms, ...drawOthers, drawCode];
const whenIdle = globalThis.requestIdleCallback ?? setTimeout;
function drawNext() {
  waiting.shift()?.();
  if (waiting.length > 0) whenIdle(drawNext);
  else document.documentElement.dataset.complete = "yes";
}
addEventListener("beforeprint", () => { while (waiting.length > 0) drawNext(); });
function setReady() {
  document.documentElement.dataset.ready = "yes";
  performance.mark("ready");
  whenIdle(drawNext);
}
