// Opens a page in a real browser, uses it as a reader would, and prints what was seen as JSON: node page.js CHROMIUM FILE PROGRAM [PICTURES]
"use strict";
const puppeteer = require("puppeteer-core");
const axe = require.resolve("axe-core/axe.min.js");
const { pathToFileURL } = require("node:url");

const [chromium, file, program, pictures] = process.argv.slice(2);

async function main() {
  const browser = await puppeteer.launch({ executablePath: chromium, args: ["--no-sandbox", "--disable-gpu"] });
  try {
    const seen = { complaints: [], requests: [] };
    const page = await browser.newPage();
    page.on("console", (message) => seen.complaints.push(message.text()));
    page.on("pageerror", (error) => seen.complaints.push(error.message));
    page.on("request", (request) => seen.requests.push(request.url()));
    await page.setViewport({ width: 1200, height: 900 });
    const began = Date.now();
    await page.goto(pathToFileURL(file).href);
    await page.waitForSelector("html[data-ready]");
    seen.ready_ms = Date.now() - began;

    const text = (selector) => page.$eval(selector, (element) => element.textContent);
    const rows = () =>
      page.$$eval("#table tbody tr", (lines) => lines.map((line) => [...line.cells].map((cell) => cell.textContent)));
    seen.columns = await page.$$eval("#table th", (cells) => cells.map((cell) => cell.textContent));
    seen.rows = await rows();
    seen.total = await page.$$eval("#table tfoot td", (cells) => cells.map((cell) => cell.textContent));

    const cells = (lines) => lines.map((line) => [...line.cells].map((cell) => cell.textContent));
    seen.payers = await page.$$eval("#payers-table tbody tr", cells);
    seen.pairs = await page.$$eval("#pairs-table tbody tr", cells);

    seen.lines = await page.$$eval("#lines-table tfoot tr", cells);

    // By keyboard: the column's name, once for the largest first, again for the smallest.
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
    await type("#filter", program.replace(/ \(.*/, ""));
    seen.filtered = await rows();
    await type("#filter", "");

    await type("#search", program);
    seen.found = await text("#found");
    await type("#search", "");

    // Zoom by click, and back by keyboard.
    const frames = () => page.$$eval("#flame button", (all) => all.map((frame) => frame.title));
    seen.frames = await frames();
    const second = (await page.$$("#flame button"))[1];
    seen.zoomed_into = await second.evaluate((frame) => frame.title);
    await second.click();
    seen.zoomed = await frames();
    seen.zoomed_width = await page.$eval("#flame button:not(.above)", (frame) => frame.style.width);
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

    // The code of the program that was clicked, then with all instructions.
    const code = () =>
      page.$$eval("table.code tbody tr:not([hidden])", (lines) => lines.map((line) => [...line.cells].map((cell) => cell.textContent)));
    seen.code_program = await page.$eval("#code-program", (list) => list.value);
    seen.code = await code();
    await page.click("#code-all");
    seen.instructions = await code();
    await page.click("#code-all");

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
    console.log(JSON.stringify(seen));
  } finally {
    await browser.close();
  }
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
