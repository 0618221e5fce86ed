// First screen: the cost of BPF, the payers and the reasons. All texts and shares come with the data; the script sets positions and colours.
const first = data.first;
const svg = (tag, attributes = {}, ...children) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
};

// A program has the same colour in every panel: hue by owner, shade by program.
const colours = first.programs.map(({ colour }) => (colour === null ? "var(--grey)" : `rgb(${colour.join(" ")})`));
const dot = (program) => {
  const element = make("i", { class: "dot" });
  element.style.background = colours[program];
  return element;
};

// Name that keeps its end when there is no room: similar programs differ in their ids.
const fit = (name) => {
  const end = name.search(/.{0,4}( \([^()]*\))?$/);
  return make("span", { class: "fit" }, make("span", {}, name.slice(0, end)), name.slice(end));
};

// A selected part of the time has whole intervals: all panels then add up the same samples.
const intervals = Math.max(1, Math.ceil(first.elapsed_s / first.interval_s));
// Total that is 100 % in a part of the time: its samples if shares are of all samples, otherwise its length.
const wholeOf = ([from, to]) => {
  if (first.samples.length > 0) return costOf(first.samples, [from, to]);
  let length = 0;
  for (let at = from; at < to; at++) length += lengthOf(at);
  return length;
};
const lengthOf = (at) => Math.max(0, Math.min(first.interval_s, first.elapsed_s - at * first.interval_s));
const secondsOf = (at) => +Math.min(at * first.interval_s, first.elapsed_s).toFixed(3);
const intervalsOf = ([from, to]) => [Math.floor(from / first.interval_s + 1e-3), Math.min(intervals, Math.ceil(to / first.interval_s - 1e-3))];
function timeOf(from, to) {
  if (!(to > from && from >= 0 && from < first.elapsed_s)) return null;
  const [begin, end] = intervalsOf([from, to]);
  return end > begin && end - begin < intervals ? [secondsOf(begin), secondsOf(end)] : null;
}

// The selection is stored in the URL, so that a link opens the page with the same selection.
const chosen = { program: null, payer: null, time: null, function: null };
let hovered = null;
const costliest = Math.max(0, first.programs.findIndex((row) => row.key !== ""));
// Costs of programs to payers, and sums of each payer (% and tax as texts), in the selected part of the time.
let flows = [], paid = [];
const flowOf = new Map();
function readUrl() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const at = (list, name) => { const found = list.findIndex((it) => (it.key || it.name) === name); return found < 0 ? null : found; };
  chosen.function = asked.get("function");
  chosen.program = at(first.programs, asked.get("program"));
  chosen.payer = at(first.payers, asked.get("payer"));
  const [from, to] = (asked.get("time") ?? "").split("-").map(Number);
  chosen.time = timeOf(from, to);
}
function choose(change) {
  Object.assign(chosen, change);
  const asked = new URLSearchParams();
  if (chosen.program !== null) asked.set("program", first.programs[chosen.program].key || first.programs[chosen.program].name);
  if (chosen.payer !== null) asked.set("payer", first.payers[chosen.payer].name);
  if (chosen.time !== null) asked.set("time", chosen.time.join("-"));
  if (chosen.function !== null) asked.set("function", chosen.function);
  const hash = asked.toString();
  history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
  drawChosen();
}
function dim() {
  const { program, payer } = hovered ?? chosen;
  for (const element of document.querySelectorAll("#first [data-p], #first [data-y]")) {
    const p = element.dataset.p, y = element.dataset.y;
    const pays = (a, b) => (flowOf.get(`${a} ${b}`) ?? 0) > 0.004;
    const isOff = (program !== null && (p !== undefined ? Number(p) !== program : !pays(program, y)))
      || (payer !== null && (y !== undefined ? Number(y) !== payer : !pays(p, payer)));
    element.classList.toggle("dim", isOff);
  }
}
// Connects an element with its program and payer: a pointer over the element highlights both, a click selects both.
function marks(element, { program = null, payer = null }) {
  if (program !== null) element.dataset.p = program;
  if (payer !== null) element.dataset.y = payer;
  element.addEventListener("pointerenter", () => { hovered = { program, payer }; dim(); });
  element.addEventListener("pointerleave", () => { hovered = null; dim(); });
  element.addEventListener("click", () => choose({ program: program !== null && program === chosen.program && payer === null ? null : program, payer: payer !== null && payer === chosen.payer ? null : payer }));
  return element;
}

// Returns the parts of a sentence, with the shares in bold.
const withBold = (text) => text.split(/([0-9.]+ %)/).map((part, at) => (at % 2 === 1 ? make("b", {}, part) : part));

$("title").textContent = "bprec";
$("machine-facts").textContent = first.machine_facts;
$("claims").append(
  make("div", {}, make("div", { class: "label" }, "BPF costs"), make("div", { class: "huge" }, first.percent, make("small", {}, " %")), make("p", {}, first.of)),
  ...first.claims.map(({ label, name, program, text }) => make("div", {},
    make("div", { class: "label" }, label),
    make("div", { class: "name", title: name }, ...(program === null ? [] : [dot(program)]), fit(name)),
    make("p", {}, ...text.flatMap((line, at) => [...(at > 0 ? [make("br")] : []), ...withBold(line)])),
  )),
);

// Draws the machine as one bar, and below it the part of BPF in full width.
(() => {
  const part = (name, percent, text, attributes = {}) => {
    const element = make("div", { class: "part", title: `${name} ${text}`, ...attributes });
    if (percent > 2.5) element.append(fit(name), " ", make("span", {}, text));
    element.style.width = `${percent}%`;
    return element;
  };
  const whole = first.machine.reduce((sum, it) => sum + it.percent, 0);
  const share = (percent) => (100 * percent) / whole;
  $("machine").append(...first.machine.map(({ name, percent, text }) => part(name, share(percent), text, { class: `part ${name}` })));
  const bpf = first.machine.find((it) => it.name === "BPF");
  const magnifier = svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" });
  if (bpf) magnifier.append(svg("path", { d: `M${100 - share(bpf.percent)} 0L0 10H100V0Z` }));
  $("magnifier").append(magnifier);
  const all = first.programs.reduce((sum, row) => sum + row.percent, 0);
  $("bpf-parts").append(...first.programs.map((row, at) => {
    const element = part(row.name, (100 * row.percent) / all, `${row.text} %`);
    element.style.background = colours[at];
    return marks(element, { program: at });
  }));
})();

// ---- When

const series = first.programs.map((row) => {
  const of = new Array(intervals).fill(0);
  for (const [at, percent] of row.intervals) if (at < intervals) of[at] = percent;
  return of;
});
const sums = series.reduce((sum, of) => sum.map((it, at) => it + of[at]), new Array(intervals).fill(0));
// A last interval shorter than half of the usual length has too few samples to set the scale.
const highest = Math.max(...sums.filter((_, at) => at === 0 || lengthOf(at) > first.interval_s / 2), 1e-9);
const step = [1, 2, 5, 10].map((it) => it * 10 ** Math.floor(Math.log10(highest / 2))).find((it) => highest / it <= 4) ?? highest;
const LEFT = 34, HEIGHT = 74;
const ceiling = Math.ceil(highest / step) * step;
const xOf = (seconds, width) => LEFT + ((width - LEFT) * Math.min(seconds, first.elapsed_s)) / first.elapsed_s;
function drawTime() {
  const width = $("time").clientWidth || 1000;
  const y = (value) => HEIGHT - (HEIGHT * Math.min(value, ceiling)) / ceiling;
  const elements = [];
  for (let at = 0; at <= ceiling + step / 2; at += step) {
    elements.push(svg("path", { class: "hair", d: `M${LEFT} ${y(at)}H${width}` }), svg("text", { x: LEFT - 6, y: y(at) + (at === 0 ? 0 : at < ceiling ? 4 : 9), "text-anchor": "end" }, String(+at.toPrecision(3))));
  }
  let base = new Array(intervals).fill(0);
  for (let program = series.length - 1; program >= 0; program--) {
    const top = base.map((it, at) => it + series[program][at]);
    const edge = (of, at) => [xOf(at * first.interval_s, width), y(of[at]), xOf((at + 1) * first.interval_s, width)];
    const there = top.map((_, at) => { const [from, height, to] = edge(top, at); return `${from.toFixed(1)} ${height.toFixed(1)}H${to.toFixed(1)}`; });
    const back = base.map((_, at) => { const [from, height, to] = edge(base, at); return `${to.toFixed(1)} ${height.toFixed(1)}H${from.toFixed(1)}`; }).reverse();
    const path = svg("path", { d: `M${there.join("L")}L${back.join("L")}Z` }, svg("title", {}, first.programs[program].name));
    path.style.fill = colours[program];
    elements.push(marks(path, { program }));
    base = top;
  }
  const every = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600].find((it) => first.elapsed_s / it <= Math.min(10, width / 60)) ?? first.elapsed_s;
  for (let at = 0; at <= first.elapsed_s; at += every) {
    elements.push(svg("text", { x: xOf(at, width), y: HEIGHT + 14, "text-anchor": at === 0 ? "start" : "middle" }, `${+at.toFixed(1)} s`));
  }
  const taken = [];
  for (const { at_s, text } of first.flags) {
    const x = xOf(at_s, width), isRight = x > width * 0.7;
    const room = [x - (isRight ? 7 * text.length : 0), x + (isRight ? 0 : 7 * text.length)];
    elements.push(svg("path", { class: "flag", d: `M${x} 0V${HEIGHT}` }, svg("title", {}, `${text} at ${at_s.toFixed(2)} s`)));
    if (taken.some(([from, to]) => room[0] < to && from < room[1])) continue;
    taken.push(room);
    elements.push(svg("text", { class: "on", x: x + (isRight ? -5 : 5), y: 11, "text-anchor": isRight ? "end" : "start" }, text));
  }
  if (chosen.time !== null) {
    const [from, to] = chosen.time.map((at) => xOf(at, width));
    elements.push(svg("path", { class: "outside", d: `M${LEFT} 0H${from}V${HEIGHT}H${LEFT}ZM${to} 0H${width}V${HEIGHT}H${to}Z` }));
  }
  $("time").replaceChildren(...elements);
}
(() => {
  let from = null;
  const at = (event) => {
    const box = $("time").getBoundingClientRect();
    const part = (event.clientX - box.left - LEFT) / (box.width - LEFT);
    return secondsOf(Math.round((Math.max(0, Math.min(1, part)) * first.elapsed_s) / first.interval_s));
  };
  // Values of the interval below the pointer, the costliest program first.
  $("time").addEventListener("pointermove", (event) => {
    const box = $("time").getBoundingClientRect(), part = (event.clientX - box.left - LEFT) / (box.width - LEFT);
    const interval = Math.floor((part * first.elapsed_s) / first.interval_s);
    if (!(interval >= 0 && interval < intervals)) return;
    const values = first.programs.map((row, program) => [row.name, series[program][interval]]).filter(([, value]) => value > 0).sort((a, b) => b[1] - a[1]);
    const shown = values.slice(0, 3).map(([name, value]) => `${name} ${value.toFixed(2)}`);
    $("time-values").textContent = `${secondsOf(interval)} s to ${secondsOf(interval + 1)} s: ${[`${sums[interval].toFixed(2)} %`, ...shown].join(" · ")}`;
  });
  $("time").addEventListener("pointerleave", () => { $("time-values").textContent = ""; });
  $("time").addEventListener("pointerdown", (event) => { from = at(event); });
  addEventListener("pointerup", (event) => {
    const to = from === null ? null : at(event);
    if (to !== null && to !== from) choose({ time: timeOf(Math.min(from, to), Math.max(from, to)) });
    from = null;
  });
  for (const id of ["time-from", "time-to"]) {
    $(id).addEventListener("change", () => {
      const [from, to] = [$("time-from"), $("time-to")].map((input) => Number(input.value));
      choose({ time: timeOf(from, to) });
    });
  }
  $("time-all").addEventListener("click", () => choose({ time: null }));
})();

// Sum of costs by interval in the selected part of the time.
const costOf = (costs, [from, to]) => costs.reduce((sum, [at, samples]) => sum + (at >= from && (at < to || to === intervals) ? samples : 0), 0);

function setFlows() {
  const time = chosen.time === null ? [0, intervals] : intervalsOf(chosen.time);
  const all = wholeOf([0, intervals]), selected = wholeOf(time);
  const sums = first.payers.map(() => [0, 0]);
  flows = first.flows.map(([program, payer, percent, costs]) => {
    if (chosen.time === null) return [program, payer, percent];
    const whole = costOf(costs, [0, intervals]), cost = costOf(costs, time);
    const part = whole > 0 && selected > 0 ? (((percent * cost) / whole) * all) / selected : 0;
    sums[payer][0] += part;
    sums[payer][1] += cost;
    return [program, payer, part];
  });
  paid = first.payers.map((it, at) => {
    if (chosen.time === null) return it;
    const [percent, cost] = sums[at], all = costOf(it.all, time);
    return { ...it, percent, text: percent.toFixed(2), tax: all > 0 ? `${((100 * cost) / all).toFixed(1)} %` : "" };
  });
  flowOf.clear();
  flows.forEach(([program, payer, percent]) => flowOf.set(`${program} ${payer}`, percent));
}

// Share of a program in the chosen part of the time: the mean of its intervals.
function shareOf(program) {
  if (chosen.time === null) return [first.programs[program].percent, first.programs[program].text];
  const [from, to] = intervalsOf(chosen.time);
  const whole = wholeOf([from, to]);
  let sum = 0;
  for (let at = from; at < to; at++) sum += series[program][at] * wholeOf([at, at + 1]);
  const mean = whole > 0 ? sum / whole : 0;
  return [mean, mean.toFixed(2)];
}

// ---- What costs, who pays

const bar = (parts, most) => {
  const element = make("div", { class: "cost" });
  for (const [percent, colour, opacity] of parts) {
    const part = make("i");
    part.style.cssText = `width:${(100 * percent) / most}%;background:${colour};opacity:${opacity}`;
    element.append(part);
  }
  return element;
};
const head = (cells) => make("thead", {}, make("tr", {}, ...cells.map(([name, kind]) => make("th", { scope: "col", class: kind }, name))));
const nameCell = (mark, name, about) => {
  const button = make("button", { type: "button", title: name }, fit(name));
  return make("td", { class: "who", title: about }, make("div", {}, ...mark, button), make("small", {}, about));
};
function drawRows() {
  const shares = first.programs.map((_, program) => shareOf(program));
  const most = Math.max(...shares.map(([percent]) => percent), 1e-9);
  const spark = (program) => {
    const top = Math.max(...series[program], 1e-9);
    const points = series[program].map((it, at) => `${((at / Math.max(1, intervals - 1)) * 90).toFixed(1)} ${(19 - (17 * Math.min(it, top)) / top).toFixed(1)}`);
    const line = svg("path", { d: `M${points.length > 1 ? points.join("L") : `0 ${10}H90`}` });
    line.style.stroke = colours[program];
    return svg("svg", { class: "spark", viewBox: "0 0 90 20", "aria-hidden": "true" }, line);
  };
  const row = (it, program) => {
    const [percent, text] = shares[program];
    const whole = it.columns.reduce((sum, part) => sum + part, 0);
    const parts = whole > 0 ? it.columns.map((part, at) => [(percent * part) / whole, colours[program], [1, 0.6, 0.3][at]]) : [[percent, colours[program], 1]];
    const line = make("tr", {},
      nameCell([dot(program)], it.name, it.about),
      make("td", { class: "of" }, bar(parts, most)),
      make("td", { class: "number big" }, text), make("td", { class: "number rate" }, it.runs), make("td", { class: "number per" }, it.time),
      make("td", { class: "over" }, spark(program)));
    return marks(line, { program });
  };
  $("costs").replaceChildren(
    head([["Program", "who"], ["Cost", "of"], ["%", "number"], ["runs/s", "number rate"], ["time/run", "number per"], ["over time", "over"]]),
    make("tbody", {}, ...first.programs.map(row)));
  const mostPaid = Math.max(...paid.map((it) => it.percent), 1e-9);
  const payer = (it, payer) => marks(make("tr", {},
    nameCell([], it.name, it.about),
    make("td", { class: "of" }, bar(first.programs.map((_, program) => [flowOf.get(`${program} ${payer}`) ?? 0, colours[program], 1]), mostPaid)),
    make("td", { class: "number big" }, it.text), make("td", { class: "number" }, it.tax)), { payer });
  $("pays").replaceChildren(
    head([["Payer", "who"], ["by program", "of"], ["%", "number"], ["tax", "number"]]),
    make("tbody", {}, ...paid.map(payer)));
}
function drawRibbons() {
  const picture = $("ribbons"), box = picture.getBoundingClientRect();
  picture.replaceChildren();
  if (box.width < 20) return;
  const middles = (id) => [...$(id).tBodies[0].rows].map((row) => { const of = row.getBoundingClientRect(); return [of.top - box.top + of.height / 2, of.height]; });
  const rows = middles("costs"), payers = middles("pays");
  if (rows.length === 0 || payers.length === 0) return;
  const costs = first.programs.map((_, program) => shareOf(program)[0]);
  const most = Math.max(...costs, ...paid.map((it) => it.percent), 1e-9);
  const scale = (rows[0][1] - 6) / most, w = box.width;
  const from = costs.map((cost, at) => rows[at][0] - (cost * scale) / 2);
  const to = paid.map((it, at) => payers[at][0] - (it.percent * scale) / 2);
  const ends = [...from.map((y, at) => [1, y, costs[at], colours[at]]), ...to.map((y, at) => [w - 5, y, paid[at].percent, "var(--quiet)"])];
  for (const [program, payer, percent] of flows) {
    const t = percent * scale, a = from[program], b = to[payer];
    from[program] += t;
    to[payer] += t;
    const path = svg("path", { d: `M6 ${a}C${w / 2} ${a} ${w / 2} ${b} ${w - 6} ${b}V${b + t}C${w / 2} ${b + t} ${w / 2} ${a + t} 6 ${a + t}Z` });
    path.style.cssText = `fill:${colours[program]};opacity:.5`;
    picture.append(marks(path, { program, payer }));
  }
  for (const [x, y, percent, colour] of ends) {
    const end = svg("rect", { x, y, width: 4, height: Math.max(percent * scale, 0.5) });
    end.style.fill = colour;
    picture.append(end);
  }
}

// ---- Who costs

if (first.owners.length > 0) {
  const most = Math.max(...first.owners.map(({ parts }) => parts[0] + parts[1] + parts[2]), 1e-9);
  const cell = ({ name, about, text, parts }) => make("a", { href: "#bill", title: about },
    make("span", {}, fit(name), make("b", {}, ` ${text}`)), bar(parts.map((part, at) => [part, "var(--accent)", [1, 0.6, 0.3][at]]), most));
  $("owners").append(make("span", { class: "label", title: "% of the machine: programs in tasks of others, own tasks, work that the programs cause" }, "Who costs, %"), ...first.owners.map(cell));
}

// ---- Why

// Nodes of a program's tree, with their parts of the program's cost in the selected part of the time.
function treeOfTime(nodes) {
  if (chosen.time === null) return nodes;
  const costs = nodes.map((node) => costOf(node.intervals, intervalsOf(chosen.time)));
  const whole = nodes.reduce((sum, { depth }, at) => sum + (depth === 1 ? costs[at] : 0), 0);
  return nodes.map((node, at) => {
    const percent = (100 * costs[at]) / whole;
    return { ...node, percent, text: percent.toFixed(2) };
  }).filter((_, at) => costs[at] > 0);
}
function drawWhy() {
  const program = chosen.program ?? costliest, row = first.programs[program];
  if (row === undefined) return;
  $("why").style.setProperty("--c", colours[program]);
  $("why-name").replaceChildren(dot(program), make("b", {}, row.name));
  // The width of a box is its part of the program's cost. A called function starts at the left edge of its caller.
  const nodes = [{ depth: 0, kind: "function", name: row.name, percent: 100, text: `${shareOf(program)[1]} %` }, ...treeOfTime(row.tree)];
  const begins = [0];
  let depth = 0;
  const boxes = nodes.map((node) => {
    const left = begins[node.depth] ?? 0;
    begins[node.depth] = left + node.percent;
    begins[node.depth + 1] = left;
    depth = Math.max(depth, node.depth);
    const told = node.depth === 0 ? `${node.name}: ${node.text}` : `${node.name}: ${node.text} % of the program`;
    const box = make("div", { class: `box is-${node.kind}`, title: told });
    box.style.cssText = `left:${left}%;width:${node.percent}%;top:${node.depth * 20}px`;
    if (node.percent > 2.5) box.append(make("span", {}, node.depth === 0 ? `${node.name} ${node.text}` : `${node.name} ${node.percent > 9 ? `${node.text} %` : ""}`));
    return box;
  });
  $("inward").style.height = `${(depth + 1) * 20}px`;
  $("inward").replaceChildren(...boxes);
  const [hottest] = row.lines;
  $("hot-file").textContent = hottest ? hottest.file : "Source";
  $("hot-about").textContent = hottest ? `hottest lines, % of the program${chosen.time === null ? "" : "; of all the time"}` : row.is_folded ? "several programs" : "no source lines with samples in this recording";
  const most = hottest ? hottest.percent : 1;
  const lines = row.lines.filter((it) => it === hottest || it.percent >= 0.5).sort((a, b) => (a.file === b.file ? a.line - b.line : a.file === hottest.file ? -1 : b.file === hottest.file ? 1 : a.file < b.file ? -1 : 1));
  $("hot").replaceChildren(...lines.map((it) => {
    const heat = make("s");
    heat.style.width = `${(50 * it.percent) / most}px`;
    const place = it.file === hottest.file ? String(it.line) : `${it.file}:${it.line}`;
    return make("tr", {}, make("td", { class: "number" }, it.text), make("td", {}, heat), make("td", { class: "number line", title: `${it.file}:${it.line}` }, place), make("td", { class: "source", title: it.source }, it.source));
  }));
  $("advice").replaceChildren(...row.advice.slice(0, 2).map(([remedy, text]) => make("p", { class: "tip", title: text }, make("b", {}, remedy), `: ${text}`)));
}

$("trust").append(...first.trust.map(({ text, lacks }) => make("span", { class: lacks ? "lacks" : "" }, text)));
$("trust").classList.toggle("amber", first.trust.some((it) => it.lacks));

function drawChosen() {
  const [from, to] = chosen.time ?? [0, first.elapsed_s];
  $("time-from").value = +from.toFixed(3);
  $("time-to").value = +to.toFixed(3);
  $("time-all").hidden = chosen.time === null;
  $("costs-about").textContent = chosen.time === null ? "" : `% of ${$("time-from").value} s to ${$("time-to").value} s`;
  $("why-time").textContent = chosen.time === null ? "" : `${from} s to ${to} s`;
  setFlows();
  drawTime();
  drawRows();
  drawRibbons();
  drawWhy();
  document.querySelectorAll("#costs tbody tr").forEach((row, at) => row.classList.toggle("chosen", at === (chosen.program ?? costliest)));
  dim();
  document.dispatchEvent(new Event("chosen"));
}
addEventListener("hashchange", () => { readUrl(); drawChosen(); });
addEventListener("resize", () => { drawTime(); drawRibbons(); dim(); });
addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== $("find")) { event.preventDefault(); $("find").focus(); }
  if (event.key === "Escape" && document.activeElement.closest("#flame") === null) choose({ program: null, payer: null, time: null });
});
$("first").hidden = first.programs.length === 0;
readUrl();
drawChosen();
