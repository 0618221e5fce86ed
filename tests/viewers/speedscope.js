// Opens a profile in speedscope, as its own command line does, lets speedscope save the imported profile, and prints the saved profile:
// node speedscope.js CHROMIUM INDEX FILE
"use strict";
const fs = require("node:fs");
const path = require("node:path");
const puppeteer = require("puppeteer-core");
const { pathToFileURL } = require("node:url");

const [chromium, index, file] = process.argv.slice(2);

async function main() {
  const source = `${file}.js`;
  const content = fs.readFileSync(file).toString("base64");
  const name = path.basename(file);
  fs.writeFileSync(source, `speedscope.loadFileFromBase64(${JSON.stringify(name)}, ${JSON.stringify(content)})`);
  const browser = await puppeteer.launch({ executablePath: chromium, args: ["--no-sandbox", "--disable-gpu"] });
  try {
    const complaints = [];
    const page = await browser.newPage();
    page.setDefaultTimeout(120000);
    // Warnings are those of WebGL in a browser without a screen.
    page.on("console", (message) => message.type() === "error" && complaints.push(message.text()));
    page.on("pageerror", (error) => complaints.push(error.message));
    page.on("dialog", (dialog) => {
      complaints.push(dialog.message());
      dialog.dismiss();
    });
    await page.evaluateOnNewDocument(() => {
      const create = URL.createObjectURL;
      URL.createObjectURL = (blob) => {
        blob.text().then((text) => (window.savedText = text));
        return create.call(URL, blob);
      };
    });
    await page.goto(`${pathToFileURL(index).href}#localProfilePath=${source}`);
    // The title has the name of the loaded profile.
    await page.waitForFunction(() => document.title !== "speedscope");
    await page.keyboard.down("Control");
    await page.keyboard.press("s");
    await page.keyboard.up("Control");
    await page.waitForFunction(() => window.savedText !== undefined);
    const saved = JSON.parse(await page.evaluate(() => window.savedText));
    console.log(JSON.stringify({ complaints, title: await page.title(), saved }));
  } finally {
    await browser.close();
  }
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
