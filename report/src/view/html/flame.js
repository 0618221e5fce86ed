// ---- The flame graph: a canvas, and a button on the focused frame. The width of a frame depends only on its samples.

// Makes a tree from arrays by node: adds the children, and the totals of each subtree. Parents come before their children.
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

// Returns the selected part of the time, in intervals of the stacks. To limit the counts in a page, these intervals may be longer than the page's
// intervals.
const stackTime = () => intervalsOf(chosen.time).map((at, is) => [Math.floor, Math.ceil][is](at / data.times.step));

// Returns the stacks in the selected part of the time.
function stacksOfTime() {
  if (chosen.time === null) return data.stacks;
  const [from, to] = stackTime(), { intervals, at, samples, weight, each } = data.times, size = data.stacks.parent.length;
  const stacks = { ...data.stacks, weight: new Array(size).fill(0), samples: new Array(size).fill(0) };
  let cell = 0;
  for (let nth = 0; nth < at.length; nth++) {
    cell += at[nth];
    const interval = cell % intervals, node = (cell - interval) / intervals;
    if (interval < from || interval >= to) continue;
    stacks.samples[node] += samples[nth];
    stacks.weight[node] += weight[nth] ?? samples[nth] * each;
  }
  return stacks;
}

// Builds a tree from paths. Each path has its frames from the root, and the weight and samples of its last frame.
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

let stacks = stacksOfTime(), all = tree(stacks);
const pathTo = (node) => {
  const path = [];
  for (let at = node; at > 0; at = all.parent[at]) path.push(all.frame[at]);
  return path.reverse();
};
const flame = { tree: all, callers: null, root: 0, program: null, inverted: false, around: null, rows: [], focused: null };

// Builds a tree of all stacks. `change` returns the frames of a stack from the root, or null to leave out the stack.
function grown(change) {
  const paths = [];
  for (let at = 1; at < all.parent.length; at++) {
    if (stacks.weight[at] === 0 && stacks.samples[at] === 0) continue;
    const path = change(pathTo(at));
    if (path !== null) paths.push([path, stacks.weight[at], stacks.samples[at]]);
  }
  return grow(paths);
}

// Sets the trees to show: all stacks; stacks from the entry into a program on, inverted if requested; or a function with its callees, and a second
// tree with its callers. A stack counts once, by the outermost call of the function.
function chooseStacks() {
  const { program, inverted, around } = flame;
  flame.callers = null;
  if (around !== null) {
    flame.tree = grown((path) => { const at = path.indexOf(around); return at < 0 ? null : path.slice(at); });
    flame.callers = grown((path) => { const at = path.indexOf(around); return at < 0 ? null : path.slice(0, at + 1).reverse(); });
  } else if (program === null && !inverted) {
    flame.tree = all;
  } else {
    flame.tree = grown((path) => {
      const at = program === null ? 0 : path.findIndex((frame) => data.frames[frame].program === program);
      const part = at < 0 ? null : path.slice(at);
      return inverted && part !== null ? part.reverse() : part;
    });
  }
  // The only child of the root is the function.
  flame.root = around === null || flame.tree.children[0].length === 0 ? 0 : flame.tree.children[0][0];
}

const ROW = 20;
const label = (frame) => (frame < 0 ? "all" : data.frames[frame].name);
const kind = (frame) => (frame < 0 ? "task" : data.frames[frame].kind);
const colourOf = new Map(first.programs.map((row, at) => [row.key, colours[at]]));
const wanted = () => $("find").value.toLowerCase();
const isFound = (frame, text) => text !== "" && label(frame).toLowerCase().includes(text);
const textOf = ({ tree, node }) => `${label(tree.frame[node])}: ${grouped(tree.count[node])} samples, ${weightText(tree.total[node])}, ${percent(tree.total[node], all.total[0])}`;

// Lays out a part of a tree: boxes by depth, from left to right. Left edges and widths are parts of the whole width. Boxes narrower than half a
// pixel are left out with their callees.
function layOut(tree, root, width) {
  const rows = [], whole = tree.total[root] || 1, stack = [[root, 0, 0]];
  while (stack.length > 0) {
    const [node, depth, left] = stack.pop();
    const share = node === root ? 1 : tree.total[node] / whole;
    if (share * width < 0.5) continue;
    (rows[depth] ??= []).push({ tree, node, left, share });
    const children = tree.children[node];
    let end = left + children.reduce((sum, child) => sum + tree.total[child], 0) / whole;
    for (let at = children.length - 1; at >= 0; at--) {
      end -= tree.total[children[at]] / whole;
      stack.push([children[at], depth + 1, end]);
    }
  }
  return rows;
}

function drawFlame(focus) {
  const { tree, callers, root } = flame, width = $("flame").clientWidth || 1000;
  const above = [];
  if (callers !== null && callers.children[0].length > 0) above.push(...layOut(callers, callers.children[0][0], width).slice(1).reverse());
  else if (callers === null) for (let at = tree.parent[root]; at >= 0; at = tree.parent[at]) above.unshift([{ tree, node: at, left: 0, share: 1, isAbove: true }]);
  flame.rows = [...above, ...layOut(tree, root, width)];
  $("flame").boxes = flame.rows.flatMap((row, at) => row.map((box) => Object.assign(box, { row: at, text: textOf(box), name: label(box.tree.frame[box.node]) })));
  $("frames").style.height = `${flame.rows.length * ROW}px`;
  paintFlame();
  const is = (box) => box.tree === tree && box.node === (focus ?? root);
  focusFrame($("flame").boxes.find(is) ?? flame.rows[above.length][0], focus !== undefined);
  drawFound();
}

// Paints the boxes. A common edge of neighbours is rounded to one device pixel, so that boxes neither overlap nor leave a gap.
function paintFlame() {
  const canvas = $("frames"), ratio = devicePixelRatio || 1, style = getComputedStyle(document.documentElement), text = wanted();
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const fills = { entry: colour("grey"), kernel: colour("busy"), user: colour("rest"), task: colour("idle"), small: colour("small"), bpf: colour("bpf"), found: colour("found") };
  const [page, ink] = [colour("page"), colour("text")];
  const width = (canvas.width = Math.round($("flame").clientWidth * ratio)), height = Math.round(ROW * ratio);
  canvas.height = flame.rows.length * height;
  const pen = canvas.getContext("2d");
  pen.font = `${11 * ratio}px ${colour("mono")}`;
  pen.textBaseline = "middle";
  const letter = pen.measureText("m").width, gap = 4 * ratio, hair = Math.max(1, Math.round(ratio / 2));
  flame.rows.forEach((row, at) => row.forEach(({ tree, node, left, share, isAbove }) => {
    const [from, to] = [left, left + share].map((edge) => Math.round(edge * width)), frame = tree.frame[node];
    const own = frame < 0 ? undefined : colourOf.get(data.frames[frame].program), isMatch = isFound(frame, text);
    pen.globalAlpha = isAbove ? 0.6 : 1;
    pen.fillStyle = isMatch ? fills.found : own?.startsWith("rgb") ? own : fills[kind(frame)];
    pen.fillRect(from, at * height, to - from, height);
    const letters = Math.floor((to - from - 2 * gap) / letter);
    if (letters >= 2) {
      const name = label(frame);
      pen.fillStyle = !isMatch && (own?.startsWith("rgb") || kind(frame) === "entry") ? "#0c0f13" : ink;
      pen.fillText(name.length > letters ? `${name.slice(0, letters - 1)}…` : name, from + gap, (at + 0.5) * height, to - from - gap);
    }
    // The line at the right edge belongs to the box.
    pen.fillStyle = page;
    if (to - from > 2 * hair) pen.fillRect(to - hair, at * height, hair, height);
    pen.fillRect(from, (at + 1) * height - hair, to - from, hair);
  }));
  pen.globalAlpha = 1;
}

// The button on the focused frame has the frame's text as name. Two buttons take turns, because a screen reader reads a new focus but no new name.
const cursors = [0, 1].map(() => make("button", { type: "button", class: "cursor", hidden: "" }));
$("flame").append(...cursors);
function focusFrame(box, isFocused) {
  flame.focused = box;
  const [old, cursor] = cursors;
  cursors.reverse();
  cursor.setAttribute("aria-label", box.text);
  cursor.style.cssText = `left:${box.left * 100}%;width:${box.share * 100}%;top:${box.row * ROW}px;height:${ROW}px`;
  cursor.hidden = false;
  if (isFocused) {
    cursor.focus({ preventScroll: true });
    cursor.scrollIntoView({ block: "nearest" });
    $("detail").textContent = box.text;
  }
  old.hidden = true;
}

// Shows the total of all stacks with a matching frame. Each sample counts once.
function drawFound() {
  const text = wanted(), { tree } = flame;
  if (text === "" || flame.callers !== null) return void ($("found").textContent = "");
  let weight = 0, count = 0;
  const stack = [flame.root];
  while (stack.length > 0) {
    const node = stack.pop();
    if (isFound(tree.frame[node], text)) {
      weight += tree.total[node];
      count += tree.count[node];
    } else stack.push(...tree.children[node]);
  }
  $("found").textContent = `“${$("find").value}”: ${grouped(count)} samples, ${weightText(weight)}, ${percent(weight, all.total[0])}`;
}

function show(change, isFocused) {
  Object.assign(flame, change);
  chooseStacks();
  const { program, inverted, around } = flame;
  $("invert").setAttribute("aria-pressed", String(inverted));
  $("around").setAttribute("aria-pressed", String(around !== null));
  $("flame-time").textContent = timeText();
  $("shown").textContent = around !== null ? `callers of ${label(around)} above it, its callees below`
    : program !== null ? `only what ${program} did; what runs it is not in its stacks` : "";
  drawFlame(isFocused ? flame.root : undefined);
}
function timeText() {
  if (chosen.time === null) return "";
  const { step } = data.times, [from, to] = stackTime().map((at) => secondsOf(at * step));
  const isWider = from < chosen.time[0] || to > chosen.time[1];
  return `${from} s to ${to} s${isWider ? `: the page has stacks by intervals of ${+(step * first.interval_s).toFixed(3)} s` : ""}`;
}

// Shows the stacks of a newly selected part of the time.
let timeOfStacks = String(chosen.time);
document.addEventListener("chosen", () => {
  if (timeOfStacks === String(chosen.time)) return;
  timeOfStacks = String(chosen.time);
  stacks = stacksOfTime();
  all = tree(stacks);
  show({});
});
const EVERYTHING = { program: null, inverted: false, around: null };

// Shows a function between its callers and callees, and puts it into the URL.
function showAround(frame, isFocused) {
  const around = frame === null || frame < 0 || kind(frame) === "small" ? null : frame;
  choose({ function: around === null ? null : label(around) });
  show({ ...EVERYTHING, around }, isFocused);
}
function showAroundOfUrl() {
  const around = chosen.function === null ? -1 : data.frames.findIndex(({ name }) => name === chosen.function);
  show({ ...EVERYTHING, around: around < 0 ? null : around });
}

function focusProgram(program) {
  show({ ...EVERYTHING, program });
  const code = data.code.programs.findIndex(({ key }) => key === program);
  if (code >= 0) {
    $("code-program").selectedIndex = code;
    drawCode();
  }
  $("flames").scrollIntoView();
}

// A click zooms into a frame. In the view of callers and callees, a click chooses another function.
function enter(box) {
  const frame = box.tree.frame[box.node];
  if (flame.around !== null) return showAround(frame, true);
  flame.root = box.node;
  drawFlame(box.node);
}
const boxAt = (event) => {
  const { left, top, width } = $("frames").getBoundingClientRect(), x = (event.clientX - left) / width;
  return flame.rows[Math.floor((event.clientY - top) / ROW)]?.find((box) => x >= box.left && x < box.left + box.share);
};
$("flame").addEventListener("click", (event) => {
  const box = event.detail === 0 ? flame.focused : boxAt(event);
  if (box !== undefined) enter(box);
});
$("flame").addEventListener("mousemove", (event) => {
  const box = boxAt(event);
  if (box !== undefined && $("detail").textContent !== box.text) $("detail").textContent = box.text;
});
$("flame").addEventListener("focusin", () => { $("detail").textContent = flame.focused.text; });
$("flame").addEventListener("keydown", (event) => {
  const { row, left, share } = flame.focused, boxes = flame.rows[row], at = boxes.indexOf(flame.focused);
  // The widest of the boxes above or below.
  const beside = (other) => {
    const near = (flame.rows[other] ?? []).filter((box) => box.left < left + share - 1e-9 && box.left + box.share > left + 1e-9);
    return near.reduce((a, b) => (a === undefined || b.share > a.share ? b : a), undefined);
  };
  const next = {
    ArrowRight: () => boxes[at + 1],
    ArrowLeft: () => boxes[at - 1],
    ArrowUp: () => beside(row - 1),
    ArrowDown: () => beside(row + 1),
  }[event.key]?.();
  if (event.key.startsWith("Arrow")) event.preventDefault();
  if (next !== undefined) focusFrame(next, true);
  if (event.key === "c") showAround(flame.around === null ? flame.focused.tree.frame[flame.focused.node] : null, true);
  if (event.key === "Escape") {
    choose({ function: null });
    show(EVERYTHING, true);
  }
});
$("invert").addEventListener("click", () => show({ inverted: !flame.inverted, around: null }));
$("around").addEventListener("click", () => showAround(flame.around === null ? flame.focused.tree.frame[flame.focused.node] : null));
$("reset").addEventListener("click", () => showAround(null));
addEventListener("resize", () => drawFlame());
addEventListener("hashchange", showAroundOfUrl);
// Repaints the canvas when the colour scheme changes.
new MutationObserver(paintFlame).observe(document.documentElement, { attributeFilter: ["class"] });
$("find").addEventListener("input", () => { paintFlame(); drawFound(); });
showAroundOfUrl();

setReady();
