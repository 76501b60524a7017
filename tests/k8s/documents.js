// Common functions of the checks in this folder: loading npm's packages, and reading a file, either
// with an independent YAML reader, as YAML 1.1 like kubectl, or as JSON, one value or several.
"use strict";

const { spawnSync } = require("node:child_process");
const fs = require("node:fs");
const { createRequire } = require("node:module");
const path = require("node:path");

const build = process.env.FO_BUILD || path.join(__dirname, "../../build/release");
const packages = path.join(build, "k8s/node_modules");

// Ends the program with one line on standard error.
function giveUp(status, message) {
  const name = path.basename(process.argv[1]);
  process.stderr.write(`${name}: error: ${message}\n`);
  process.exit(status);
}

// Loads one of npm's packages.
function load(name) {
  if (!fs.existsSync(path.join(build, "k8s/installed.json"))) {
    giveUp(69, `find npm's packages in '${build}/k8s': run tests/k8s/install first`);
  }
  return createRequire(path.join(packages, "_"))(name);
}

function fromJson(file) {
  const { error, status, stdout, stderr } = spawnSync("jq", ["-c", ".", file], {
    encoding: "utf8",
    maxBuffer: 1 << 30,
  });
  if (error) throw error;
  if (status !== 0) throw new Error(stderr.trim());
  return stdout.split("\n").filter(Boolean).map((line) => JSON.parse(line));
}

function fromYaml(file) {
  const yaml = load("yaml");
  const options = {
    version: "1.1",
    merge: true,
    // Kubernetes reads a date as a string.
    customTags: (tags) => tags.filter((tag) => tag.tag !== "tag:yaml.org,2002:timestamp"),
  };
  const parsed = yaml.parseAllDocuments(fs.readFileSync(file, "utf8"), options);
  return parsed.map((document) => {
    if (document.errors.length > 0) throw document.errors[0];
    return document.toJS();
  });
}

// All documents of a file except empty ones, with lists expanded. Throws on an error.
function readDocuments(file) {
  const read = /\.ya?ml$/.test(file) ? fromYaml(file) : fromJson(file);
  return read
    .filter((value) => value !== null)
    .flatMap((value) => {
      if (Array.isArray(value)) return value;
      return value.kind === "List" ? value.items : [value];
    });
}

// "Deployment 'name'".
function labelOf(document) {
  return `${document?.kind} '${document?.metadata?.name ?? ""}'`;
}

// Appends a key or an index to a path such as "spec.containers[0]".
function join(place, step) {
  if (typeof step === "number") return `${place}[${step}]`;
  if (!/^[A-Za-z0-9_-]+$/.test(step)) return `${place}[${JSON.stringify(step)}]`;
  return place === "" ? step : `${place}.${step}`;
}

module.exports = { giveUp, join, labelOf, load, packages, readDocuments };
