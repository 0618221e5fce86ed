// Opens a page in a real browser, uses it as a reader would, and prints its texts as JSON: node page.js CHROMIUM FILE PROGRAM [PICTURES]
"use strict";
const puppeteer = require("puppeteer-core");
const axe = require.resolve("axe-core/axe.min.js");
const { pathToFileURL } = require("node:url");

const [chromium, file, program, pictures] = process.argv.slice(2);

async function main() {
  const browser = await puppeteer.launch({ executablePath: chromium, args: ["--no-sandbox", "--disable-gpu"] });
  try {
    const seen = { complaints: [] };
    const page = await browser.newPage();
    page.on("console", (message) => seen.complaints.push(message.text()));
    page.on("pageerror", (error) => seen.complaints.push(error.message));
    const requests = new Set();
    page.on("request", (request) => requests.add(request.url().split("#")[0]));
    await page.setViewport({ width: 1200, height: 900 });
    await page.goto(pathToFileURL(file).href);
    await page.waitForSelector("html[data-complete]");

    const text = (selector) => page.$eval(selector, (element) => element.textContent);
    const rows = () =>
      page.$$eval("#table tbody tr", (lines) => lines.map((line) => [...line.cells].map((cell) => cell.textContent)));
    seen.columns = await page.$$eval("#table th", (cells) => cells.map((cell) => cell.textContent));
    seen.rows = await rows();
    seen.total = await page.$$eval("#table tfoot td", (cells) => cells.map((cell) => cell.textContent));

    // Width in pixels, width according to the share in the title, and overlap with the previous box.
    const widths = (selector) => page.$$eval(selector, (all) => {
      const whole = all[0].parentElement.clientWidth;
      const ends = new Map();
      return all.map((box) => ({ box, of: box.getBoundingClientRect() })).sort((a, b) => a.of.left - b.of.left).map(({ box, of }) => {
        const over = (ends.get(of.top) ?? -Infinity) - of.left;
        ends.set(of.top, of.right);
        const [, share] = /([0-9.]+) %[^%]*$/.exec(box.title);
        return { title: box.title, width: of.width, expected: (whole * Number(share)) / 100, over, whole };
      });
    });
    const cells = (lines) => lines.map((line) => [...line.cells].map((cell) => cell.textContent));
    seen.payers = await page.$$eval("#payers-table tbody tr", cells);
    seen.pairs = await page.$$eval("#pairs-table tbody tr", cells);

    seen.lines = await page.$$eval("#lines-table tfoot tr", cells);

    // Sorts the table by keyboard: Enter on the name of a column sorts descending, and a second Enter ascending.
    const samples = seen.columns.indexOf("SAMPLES");
    const head = async () => (await page.$$("#table th button"))[samples];
    await (await head()).focus();
    await page.keyboard.press("Enter");
    seen.descending = (await rows()).map((row) => row[samples]);
    await page.keyboard.press("Enter");
    seen.ascending = (await rows()).map((row) => row[samples]);

    const type = async (selector, text) => {
      await page.$eval(selector, (input) => { input.value = ""; });
      await page.type(selector, text || " ");
      if (!text) await page.keyboard.press("Backspace");
    };
    await type("#find", program.replace(/ \(.*/, ""));
    seen.filtered = await rows();
    await type("#find", program);
    seen.found = await text("#found");
    await type("#find", "");

    // The first screen, and its selection in the URL.
    seen.percent = await text(".huge");
    seen.costs = await page.$$eval("#costs tbody tr", cells);
    seen.pays = await page.$$eval("#pays tbody tr", cells);
    seen.claims = await page.$$eval("#claims > div", (all) => all.map((claim) => claim.textContent));
    seen.inward = await widths("#inward .box");
    // Colours of each program: its dot, its part of the bar, its areas over time, its bar and its ribbons.
    seen.colours = await page.evaluate(() => [...document.querySelectorAll("#costs tbody tr")].map((row) => {
      const colours = new Set();
      for (const element of document.querySelectorAll(`[data-p="${row.dataset.p}"]`)) {
        const painted = element.tagName === "TR" ? element.querySelectorAll(".dot, .cost i") : [element];
        for (const it of painted) colours.add(it.style.fill || it.style.backgroundColor || it.style.background);
      }
      return [...colours];
    }));
    await page.setViewport({ width: 1400, height: 900 });
    seen.first_bottom = await page.$eval("#trust", (element) => element.getBoundingClientRect().bottom);
    await page.setViewport({ width: 1200, height: 900 });
    const last = seen.costs.length - 1;
    await page.click(`#costs tbody tr:nth-child(${last + 1}) td:nth-child(3)`);
    // Selects the time by a drag.
    const brush = async () => {
      const box = await (await page.$("#time")).boundingBox();
      await page.mouse.move(box.x + box.width * 0.3, box.y + 40);
      await page.mouse.down();
      await page.mouse.move(box.x + box.width * 0.7, box.y + 40);
      await page.mouse.up();
    };
    await brush();
    const state = () => page.evaluate(() => ({
      hash: decodeURIComponent(location.hash),
      chosen: [...document.querySelectorAll("#costs tbody tr")].findIndex((row) => row.classList.contains("chosen")),
      costs: [...document.querySelectorAll("#costs td.big")].map((cell) => cell.textContent),
      pays: [...document.querySelectorAll("#pays tbody tr")].map((row) => [...row.cells].map((cell) => cell.textContent)),
      time: ["#time-from", "#time-to"].map((id) => Number(document.querySelector(id).value)),
      times: ["#why-time", "#flame-time"].map((id) => document.querySelector(id).textContent),
      boxes: document.querySelector("#flame").boxes.map(({ row, share, name, text }) => ({ row, share, name, text })),
      inward: [...document.querySelectorAll("#inward .box")].map((box) => box.title),
    }));
    await page.mouse.move(0, 0);
    seen.chosen = await state();
    const url = page.url();
    await page.goto("about:blank");
    await page.goto(url);
    await page.waitForSelector("html[data-complete]");
    seen.reopened = await state();
    await page.keyboard.press("Escape");
    seen.nothing_chosen = await state();
    await brush();
    seen.brushed = await state();
    await page.keyboard.press("Escape");

    // Reads the boxes of the flame graph: row, position, width and texts.
    const boxes = () => page.$eval("#flame", (flame) => flame.boxes.map(({ row, left, share, text, name }) => ({ row, left, share, text, name })));
    seen.boxes = await boxes();
    // Boxes that lack a hairline where their share ends, or have a hairline inside.
    seen.not_painted = await page.$eval("#flame", (flame) => {
      const canvas = document.querySelector("#frames"), pen = canvas.getContext("2d"), height = 20 * devicePixelRatio;
      const { data } = pen.getImageData(0, 0, canvas.width, canvas.height);
      const at = (x, y) => data.slice(4 * (y * canvas.width + x), 4 * (y * canvas.width + x) + 4).join(" ");
      return flame.boxes.filter(({ row, left, share }) => {
        const [from, to] = [left, left + share].map((edge) => Math.round(edge * canvas.width)), y = row * height + 2;
        return to - from > 4 && (at(to - 1, y) === at(from, y) || at(to - 2, y) !== at(from, y));
      }).map(({ text }) => text);
    });
    await page.emulateMediaType("print");
    seen.printed_code = await page.$$eval("table.code tbody tr:not([hidden])", (rows) => rows.filter((row) => row.getBoundingClientRect().height > 0).length);
    await page.emulateMediaType(null);
    seen.head_stays = await page.$eval("#table", (table) => {
      const scroll = table.parentElement;
      scroll.style.maxHeight = "60px";
      scroll.scrollTop = 40;
      const moved = scroll.scrollTop;
      const stays = table.tHead.rows[0].cells[0].getBoundingClientRect().top - scroll.getBoundingClientRect().top;
      scroll.style.maxHeight = "";
      return moved > 0 && Math.abs(stays) < 2;
    });

    // Zoom by click, and back by keyboard.
    const frames = async () => (await boxes()).map((box) => box.text);
    seen.frames = await frames();
    // Clicks the first box of the second row on the canvas.
    await page.$eval("#frames", (canvas) => canvas.scrollIntoView());
    const second = seen.boxes.find((box) => box.row === 1);
    const canvas = await (await page.$("#frames")).boundingBox();
    await page.mouse.click(canvas.x + (second.left + second.share / 2) * canvas.width, canvas.y + 30);
    seen.zoomed_into = second.text;
    seen.zoomed = await frames();
    seen.zoomed_share = (await boxes())[1].share;
    // Returns the label of the focused button: the name of its frame.
    const name = () => page.evaluate(() => document.activeElement.getAttribute("aria-label"));
    seen.focused_zoomed = await name();
    await page.keyboard.press("ArrowDown");
    seen.focused_below = await name();
    await page.keyboard.press("c");
    seen.sandwich = await boxes();
    seen.sandwich_hash = await page.evaluate(() => new URLSearchParams(location.hash.slice(1)).get("function"));
    await page.keyboard.press("Escape");
    seen.after_escape = (await frames()).length;
    await page.click("#invert");
    seen.inverted = await frames();
    await page.click("#reset");
    for (const button of await page.$$("#table td button")) {
      const key = await button.evaluate((it) => it.closest("tr").cells[0].textContent);
      if (program.endsWith(`(${key})`)) {
        await button.click();
        break;
      }
    }
    seen.focused = await frames();
    await page.click("#reset");

    // Reads the code of the program whose button was clicked, first by source line, then with all instructions.
    const code = () =>
      page.$$eval("table.code tbody tr:not([hidden])", (lines) => lines.map((line) => [...line.cells].map((cell) => cell.textContent)));
    seen.code_program = await page.$eval("#code-program", (list) => list.value);
    seen.code = await code();
    await page.click("#code-all");
    seen.instructions = await code();
    await page.click("#code-all");

    seen.requests = [...requests];
    seen.violations = [];
    for (const scheme of ["light", "dark"]) {
      await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
      for (const width of [1200, 400]) {
        await page.setViewport({ width, height: 900 });
        if (pictures) await page.screenshot({ path: `${pictures}/${scheme}-${width}.png`, fullPage: true });
        seen[`overflow_${width}`] = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      }
      await page.setViewport({ width: 1200, height: 900 });
      await page.evaluate(await require("node:fs/promises").readFile(axe, "utf8"));
      const found = await page.evaluate(() => axe.run());
      seen.violations.push(...found.violations.map((it) => `${scheme}: ${it.id}: ${it.nodes[0].html}`));
    }
    // A browser that is never idle draws the tables for the search and for the print.
    for (const [kind, use] of [["searched", (busy) => busy.type("#find", "a")], ["printed", (busy) => busy.pdf()]]) {
      const busy = await browser.newPage();
      await busy.evaluateOnNewDocument(() => { globalThis.requestIdleCallback = () => {}; });
      await busy.goto(pathToFileURL(file).href);
      await busy.waitForSelector("html[data-ready]");
      const drawn = () => busy.$$eval("#table, #lines-table, #payers-table, #pairs-table", (tables) => tables.filter((table) => table.tHead !== null).length);
      seen[kind] = [await drawn(), (await use(busy), await drawn())];
      await busy.close();
    }
    // Opens the page in a browser without DecompressionStream, and in a browser without scripts.
    const old = await browser.newPage();
    old.on("console", (message) => seen.complaints.push(message.text()));
    old.on("pageerror", (error) => seen.complaints.push(error.message));
    await old.evaluateOnNewDocument(() => { delete globalThis.DecompressionStream; });
    await old.goto(pathToFileURL(file).href);
    await old.waitForFunction(() => document.querySelector("#first") === null);
    seen.without_inflating = await old.evaluate(() => document.body.innerText);
    const plain = await browser.newPage();
    await plain.setJavaScriptEnabled(false);
    await plain.goto(pathToFileURL(file).href);
    seen.without_script = await plain.evaluate(() => document.querySelector("noscript").textContent + document.body.innerText);
    console.log(JSON.stringify(seen));
  } finally {
    await browser.close();
  }
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
