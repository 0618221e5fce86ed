// The page of a recording. Weights of stacks are added up here for what is on the screen, and nothing else is.
const grouped = (number) => Math.round(number).toLocaleString("en-US");
const weightText = (weight) => {
  if (data.unit !== "ns") return grouped(weight);
  if (weight >= 1e9) return (weight / 1e9).toFixed(3) + " s";
  return (weight / 1e6).toFixed(3) + " ms";
};
const percent = (part, whole) => (whole > 0 ? ((100 * part) / whole).toFixed(2) : "0.00") + " %";

list("notes", data.notes);

// ---- Programs

const hidden = new Set();
const drawPrograms = drawnTable("table", data.table, {
  filter: () => $("find").value,
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
const payersFilter = () => $("find").value;
const drawPayers = [drawnTable("payers-table", data.payers, { filter: payersFilter }), drawnTable("pairs-table", data.pairs, { filter: payersFilter })];
const drawLines = drawnTable("lines-table", data.lines, { filter: () => $("find").value });
$("find").addEventListener("input", () => {
  const rows = drawPrograms();
  $("matches").textContent = rows && `programs: ${rows}`;
  drawPayers.forEach((draw) => draw());
  drawLines();
  drawFlame();
});

// ---- Code

// A function as a table: a row for each source line, below it those of its instructions, which are hidden at first.
function functionTable(of) {
  const costs = (cells) => cells.map((cell) => make("td", { class: "number" }, cell));
  const rows = [];
  for (const line of of.lines) {
    const text = make("td", { class: "text" });
    const row = make("tr", {}, ...costs(line.cells), text);
    row.style.setProperty("--heat", `${line.percent}%`);
    rows.push(row);
    const below = line.instructions.map(([cells, code]) => make("tr", { class: "instruction" }, ...costs(cells), make("td", { class: "text" }, code)));
    if (below.length === 0) {
      text.append(line.text);
      continue;
    }
    const button = make("button", { type: "button" }, line.text);
    const show = (isShown) => {
      button.setAttribute("aria-expanded", String(isShown));
      for (const instruction of below) instruction.hidden = !isShown;
    };
    button.addEventListener("click", () => show(button.getAttribute("aria-expanded") === "false"));
    show($("code-all").checked);
    text.append(button);
    rows.push(...below);
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
drawCode();

// ---- The flame graph

// A tree is arrays by node: parent, frame, weight and samples with those of all below. Parents come before their children.
function tree(nodes) {
  const size = nodes.parent.length;
  const weight = nodes.weight.slice(), samples = nodes.samples.slice();
  const children = Array.from({ length: size }, () => []);
  for (let at = size - 1; at > 0; at--) {
    weight[nodes.parent[at]] += weight[at];
    samples[nodes.parent[at]] += samples[at];
    children[nodes.parent[at]].push(at);
  }
  for (const list of children) list.sort((a, b) => nodes.frame[a] - nodes.frame[b]);
  return { ...nodes, total: weight, count: samples, children };
}

// Builds a tree of paths, each the frames from the root on, with what is counted at its end.
function grow(paths) {
  const nodes = { parent: [-1], frame: [-1], weight: [0], samples: [0] };
  const known = [new Map()];
  for (const [path, weight, samples] of paths) {
    let at = 0;
    for (const frame of path) {
      let next = known[at].get(frame);
      if (next === undefined) {
        next = nodes.parent.length;
        known[at].set(frame, next);
        known.push(new Map());
        nodes.parent.push(at);
        nodes.frame.push(frame);
        nodes.weight.push(0);
        nodes.samples.push(0);
      }
      at = next;
    }
    nodes.weight[at] += weight;
    nodes.samples[at] += samples;
  }
  return tree(nodes);
}

const all = tree(data.stacks);
const pathTo = (node) => {
  const path = [];
  for (let at = node; at > 0; at = all.parent[at]) path.push(all.frame[at]);
  return path;
};
const flame = { tree: all, root: 0, program: null, inverted: false };

// What is looked at: all stacks, or from where they enter a program; from the outermost frame or from the innermost.
function chosenStacks() {
  if (flame.program === null && !flame.inverted) return all;
  const paths = [];
  for (let at = 1; at < all.parent.length; at++) {
    if (data.stacks.weight[at] === 0 && data.stacks.samples[at] === 0) continue;
    let path = pathTo(at).reverse();
    if (flame.program !== null) {
      const begin = path.findIndex((frame) => data.frames[frame].program === flame.program);
      if (begin < 0) continue;
      path = path.slice(begin);
    }
    if (flame.inverted) path.reverse();
    paths.push([path, data.stacks.weight[at], data.stacks.samples[at]]);
  }
  return grow(paths);
}

const ROW = 20;
const label = (frame) => (frame < 0 ? "all" : data.frames[frame].name);
const kind = (frame) => (frame < 0 ? "task" : data.frames[frame].kind);
const isFound = (frame, wanted) => wanted !== "" && label(frame).toLowerCase().includes(wanted);

function drawFlame(focus) {
  const { tree } = flame;
  const wanted = $("find").value.toLowerCase();
  const width = $("flame").clientWidth || 1000;
  const whole = tree.total[flame.root];
  const buttons = [];
  let depthMax = 0;
  const above = [];
  for (let at = tree.parent[flame.root]; at >= 0; at = tree.parent[at]) above.push(at);
  above.reverse();
  const place = (node, depth, left, share, isAbove) => {
    const frame = tree.frame[node];
    const text = label(frame);
    const told = `${text}: ${grouped(tree.count[node])} samples, ${weightText(tree.total[node])}, ${percent(tree.total[node], all.total[0])}`;
    const button = make("button", { type: "button", tabindex: "-1", "aria-label": told, title: told });
    button.className = (isFound(frame, wanted) ? "found" : kind(frame)) + (isAbove ? " above" : "");
    button.style.cssText = `left:${left * 100}%;width:${share * 100}%;top:${depth * ROW}px`;
    if (share * width > 20) button.textContent = text;
    button.dataset.node = node;
    buttons.push(button);
    depthMax = Math.max(depthMax, depth);
  };
  above.forEach((node, depth) => place(node, depth, 0, 1, true));
  const stack = [[flame.root, above.length, 0]];
  while (stack.length > 0) {
    const [node, depth, left] = stack.pop();
    const share = whole > 0 ? tree.total[node] / whole : 1;
    if (share * width < 0.75 && node !== flame.root) continue;
    place(node, depth, left, share, false);
    let at = left;
    for (const child of tree.children[node]) {
      stack.push([child, depth + 1, at]);
      at += whole > 0 ? tree.total[child] / whole : 0;
    }
  }
  $("flame").style.height = `${(depthMax + 1) * ROW}px`;
  $("flame").replaceChildren(...buttons);
  const first = buttons.find((button) => Number(button.dataset.node) === (focus ?? flame.root)) ?? buttons[0];
  first.tabIndex = 0;
  if (focus !== undefined) first.focus();
  drawFound(wanted);
}

// What goes through a frame that is searched for; no sample twice.
function drawFound(wanted) {
  if (wanted === "") return void ($("found").textContent = "");
  const { tree } = flame;
  let weight = 0, count = 0;
  const stack = [flame.root];
  while (stack.length > 0) {
    const node = stack.pop();
    if (isFound(tree.frame[node], wanted)) {
      weight += tree.total[node];
      count += tree.count[node];
    } else stack.push(...tree.children[node]);
  }
  $("found").textContent = `“${$("find").value}”: ${grouped(count)} samples, ${weightText(weight)}, ${percent(weight, all.total[0])}`;
}

function show(change, focus) {
  Object.assign(flame, change);
  flame.tree = chosenStacks();
  flame.root = 0;
  $("invert").setAttribute("aria-pressed", String(flame.inverted));
  $("shown").textContent = flame.program === null ? "" : `only what ${flame.program} did; what runs it is not in its stacks`;
  drawFlame(focus);
}

function focusProgram(program) {
  show({ program });
  const code = data.code.programs.findIndex(({ key }) => key === program);
  if (code >= 0) {
    $("code-program").selectedIndex = code;
    drawCode();
  }
  $("flames").scrollIntoView();
}

function zoom(node) {
  flame.root = node;
  drawFlame(node);
}

$("flame").addEventListener("click", (event) => {
  const node = event.target.dataset.node;
  if (node !== undefined) zoom(Number(node));
});
for (const kind of ["focusin", "mouseover"]) {
  $("flame").addEventListener(kind, (event) => {
    if (event.target.title) $("detail").textContent = event.target.title;
  });
}
$("flame").addEventListener("keydown", (event) => {
  const node = Number(event.target.dataset.node);
  if (Number.isNaN(node)) return;
  const { tree } = flame;
  const siblings = node === 0 ? [0] : tree.children[tree.parent[node]];
  const at = siblings.indexOf(node);
  const next = {
    ArrowRight: () => siblings[at + 1],
    ArrowLeft: () => siblings[at - 1],
    ArrowUp: () => (node === 0 ? undefined : tree.parent[node]),
    ArrowDown: () => tree.children[node].reduce((a, b) => (a === undefined || tree.total[b] > tree.total[a] ? b : a), undefined),
  }[event.key]?.();
  if (event.key === "Escape") show({ program: null, inverted: false }, 0);
  const button = next === undefined ? null : $("flame").querySelector(`[data-node="${next}"]`);
  if (button) {
    event.target.tabIndex = -1;
    button.tabIndex = 0;
    button.focus();
  }
  if (event.key.startsWith("Arrow")) event.preventDefault();
});
$("invert").addEventListener("click", () => show({ inverted: !flame.inverted }));
$("reset").addEventListener("click", () => show({ program: null, inverted: false }));
addEventListener("resize", () => drawFlame());
drawFlame();

document.documentElement.dataset.ready = "yes";
