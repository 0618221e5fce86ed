// Common script of all pages: reading the data, facts, light or dark colours, and tables that sort and filter. All numbers in tables come as text.
const $ = (id) => document.getElementById(id);
const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
};

// Returns the inflated data. A browser that cannot inflate shows the table for browsers without scripts, and the script ends here.
async function readData() {
  if (!("DecompressionStream" in globalThis)) {
    const plain = document.querySelector("noscript")?.textContent ?? "";
    document.body.innerHTML = `<h1>bprec</h1><p>This browser is too old for the page: it lacks DecompressionStream.</p>${plain}`;
    return new Promise(() => {});
  }
  const packed = atob($("data").textContent), bytes = new Uint8Array(packed.length);
  for (let at = 0; at < bytes.length; at++) bytes[at] = packed.charCodeAt(at);
  const stream = new DecompressionStream("deflate-raw"), writer = stream.writable.getWriter();
  writer.write(bytes);
  writer.close();
  return new Response(stream.readable).json();
}
const data = await readData();
document.title = data.title;
$("title").textContent = data.title;
const list = (id, lines) => $(id).append(...lines.map((line) => make("li", {}, line)));
list("facts", data.facts);
// The page follows the system's colour scheme until the reader chooses.
const dark = matchMedia("(prefers-color-scheme: dark)");
let isChosen = false;
const setScheme = (isDark) => document.documentElement.classList.toggle("dark", isDark);
setScheme(dark.matches);
dark.addEventListener("change", () => isChosen || setScheme(dark.matches));
$("scheme").addEventListener("click", () => {
  isChosen = true;
  setScheme(!document.documentElement.classList.contains("dark"));
});

// "≈1,234±5%" sorts as 1234; unknown values sort last.
const sortKey = (text) => {
  const number = parseFloat(text.replace(/[≈≥≤,]/g, ""));
  return Number.isNaN(number) ? -Infinity : number;
};

// Returns a function that draws a table with sortable columns. `filter` limits the rows, `hidden` the columns; `fill` can put elements into a cell instead of text.
function tableDrawer(id, sheet, { filter = () => "", hidden = new Set(), fill = () => false } = {}) {
  const { columns, rows, totals } = sheet;
  let sort = null;
  let isDescending = true;
  const kind = (at) => (columns[at].number ? "number" : columns[at].name === "PROGRAM" ? "text frozen" : "text");
  const draw = () => {
    const shown = columns.map((_, at) => at).filter((at) => !hidden.has(at));
    const wanted = filter().toLowerCase();
    const order = rows.map((_, at) => at).filter((at) => rows[at].join("\n").toLowerCase().includes(wanted));
    if (sort !== null) {
      const compare = columns[sort].number
        ? (a, b) => sortKey(rows[a][sort]) - sortKey(rows[b][sort])
        : (a, b) => rows[a][sort].localeCompare(rows[b][sort], "en");
      order.sort((a, b) => (isDescending ? -compare(a, b) : compare(a, b)) || a - b);
    }
    const head = shown.map((at) => {
      const button = make("button", { type: "button" }, columns[at].name);
      button.addEventListener("click", () => {
        isDescending = sort === at ? !isDescending : columns[at].number;
        sort = at;
        draw();
        $(id).querySelectorAll("th button")[shown.indexOf(at)].focus();
      });
      const attributes = { scope: "col", class: kind(at) };
      if (sort === at) attributes["aria-sort"] = isDescending ? "descending" : "ascending";
      return make("th", attributes, button);
    });
    const cell = (row, column, text) => {
      const cell = make("td", { class: kind(column) });
      if (row === null || !fill(cell, row, column, text)) cell.append(text);
      return cell;
    };
    const line = (row, cells) => make("tr", {}, ...shown.map((at) => cell(row, at, cells[at])));
    $(id).replaceChildren(
      make("thead", {}, make("tr", {}, ...head)),
      make("tbody", {}, ...order.map((at) => line(at, rows[at]))),
      make("tfoot", {}, ...totals.map((cells) => line(null, cells))),
    );
    return wanted ? `${order.length} of ${rows.length} rows` : "";
  };
  return draw;
}
