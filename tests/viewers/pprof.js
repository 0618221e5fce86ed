// Decodes a profile with Datadog's package and prints the sum of samples of each source line: of all samples, and of those at the line itself.
// node pprof.js FILE
"use strict";
const fs = require("node:fs");
const zlib = require("node:zlib");
const { Profile } = require("pprof-format");

const profile = Profile.decode(zlib.gunzipSync(fs.readFileSync(process.argv[2])));
const text = (number) => profile.stringTable.strings[Number(number)];
const byId = (rows) => new Map(rows.map((row) => [Number(row.id), row]));
const [locations, functions] = [byId(profile.location), byId(profile.function)];
const kinds = profile.sampleType.map((kind) => [text(kind.type), text(kind.unit)]);
const totals = kinds.map(() => 0);
const lines = new Map();
for (const sample of profile.sample) {
  const [samples] = sample.value.map(Number);
  sample.value.forEach((value, at) => (totals[at] += Number(value)));
  // Lines of the chain, innermost first; a line that is there twice counts once.
  const chain = sample.locationId.flatMap((id) =>
    locations.get(Number(id)).line.map((line) => {
      const { name, filename } = functions.get(Number(line.functionId));
      return `${text(filename)}\n${Number(line.line)}\n${text(name)}`;
    }),
  );
  for (const key of new Set(chain)) {
    const [file, line, name] = key.split("\n");
    const row = lines.get(key) ?? { file, line: Number(line), function: name, flat: 0, cum: 0 };
    row.cum += samples;
    row.flat += key === chain[0] ? samples : 0;
    lines.set(key, row);
  }
}
console.log(JSON.stringify({ kinds, totals, lines: [...lines.values()] }));
