// Measures how soon pages are ready in a real browser: NODE_PATH=target/viewers/node_modules node benches/page.js CHROMIUM RUNS FILE...
// The pages take turns. Prints medians, with minimums in parentheses.
"use strict";
const puppeteer = require("puppeteer-core");
const { pathToFileURL } = require("node:url");

const [chromium, runs, ...files] = process.argv.slice(2);

// Times in ms from the start of the navigation, and CPU time of the page's main thread until it is ready.
async function measure(browser, file) {
  const page = await browser.newPage();
  await page.setViewport({ width: 1400, height: 900 });
  const session = await page.createCDPSession();
  await session.send("Performance.enable", { timeDomain: "threadTicks" });
  await page.evaluateOnNewDocument(() => {
    const root = () => document.documentElement?.dataset ?? {};
    const mark = () => { if ("complete" in root()) performance.mark("complete"); };
    new MutationObserver(mark).observe(document, { subtree: true, attributeFilter: ["data-complete"] });
  });
  await page.goto(pathToFileURL(file).href, { waitUntil: "domcontentloaded" });
  await page.waitForSelector("html[data-ready]");
  const { metrics } = await session.send("Performance.getMetrics");
  await page.waitForSelector("html[data-complete]");
  const times = await page.evaluate(() => ["first-contentful-paint", "ready", "complete"].map((name) => [name, performance.getEntriesByName(name)[0].startTime]));
  await page.close();
  return { ...Object.fromEntries(times), cpu: 1000 * metrics.find(({ name }) => name === "TaskDuration").value };
}

async function main() {
  const browser = await puppeteer.launch({ executablePath: chromium, args: ["--no-sandbox", "--disable-gpu"] });
  const measured = files.map(() => []);
  for (let run = 0; run < Number(runs); run++) {
    for (const [at, file] of files.entries()) measured[at].push(await measure(browser, file));
  }
  await browser.close();
  for (const [at, file] of files.entries()) {
    const text = Object.keys(measured[at][0]).map((name) => {
      const sorted = measured[at].map((it) => it[name]).sort((a, b) => a - b);
      return `${name} ${sorted[Math.floor(sorted.length / 2)].toFixed(0)} (${sorted[0].toFixed(0)}) ms`;
    });
    console.log(`${file}: ${text.join(", ")}`);
  }
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
