// Renders /openapi.json. All text goes through textContent.
"use strict";

function el(name, attrs, ...children) {
  const e = document.createElement(name);
  for (const [k, v] of Object.entries(attrs || {})) e.setAttribute(k, v);
  for (const c of children) if (c !== null && c !== undefined && c !== "") e.append(c);
  return e;
}

const refName = (s) => s.$ref.slice(s.$ref.lastIndexOf("/") + 1);

function typeOf(s) {
  if (!s) return "";
  if (s.$ref) return refName(s);
  if (s.oneOf) return s.oneOf.map(typeOf).join(" or ");
  const types = [].concat(s.type || []).filter((t) => t !== "null");
  if (types[0] === "array") return typeOf(s.items) + "[]";
  if (types[0] === "object" && s.additionalProperties && s.additionalProperties !== true) return "map of " + typeOf(s.additionalProperties);
  if (s.format === "binary") return "bytes";
  return types.join(" or ") || "any";
}

function notes(s) {
  const out = [];
  if (s.description) out.push(s.description);
  if (s.enum) out.push("One of: " + s.enum.join(", ") + ".");
  if (s.default !== undefined) out.push("Default: " + s.default + ".");
  if (s.minimum !== undefined && s.maximum !== undefined) out.push("Range: " + s.minimum + "…" + s.maximum + ".");
  else if (s.minimum !== undefined) out.push("At least " + s.minimum + ".");
  else if (s.maximum !== undefined) out.push("At most " + s.maximum + ".");
  return out.join(" ");
}

function fields(doc, schema, depth) {
  while (schema && schema.$ref) schema = doc.components.schemas[refName(schema)];
  if (schema && schema.items) return fields(doc, schema.items, depth);
  if (!schema || !schema.properties || depth > 3) return null;
  const required = schema.required || [];
  const table = el("table");
  for (const [name, s] of Object.entries(schema.properties)) {
    const inner = fields(doc, s, depth + 1);
    const label = el("code", {}, name);
    const cell = el("td", {}, notes(s));
    if (inner) cell.append(el("details", {}, el("summary", { class: "dim" }, "fields"), inner));
    table.append(el("tr", {}, el("td", {}, label, required.includes(name) ? " *" : ""), el("td", { class: "dim" }, typeOf(s)), cell));
  }
  return table;
}

function curl(method, path, op) {
  let url = location.origin + path.replace(/{(\w+)}/g, "$$$1");
  // Files are named by their path. Where raw bytes do, they are the example.
  const types = (op.requestBody || {}).content || {};
  const body = types["application/json"] && !types["application/octet-stream"];
  if (!body && (op.parameters || []).some((p) => p.in === "query" && p.name === "path")) url = '"' + url + '?path=PATH"'; // quoted for the ?
  const parts = ["curl", "-X" + method, url];
  if (body) parts.push("-d '{…}'");
  else if (op.requestBody) parts.push("--data-binary @FILE");
  return parts.join(" ");
}

function operation(doc, method, path, op) {
  const s = el("section", { id: op.operationId });
  s.append(el("h3", {}, el("span", { class: "method" }, method), path), el("div", {}, op.summary));
  if (op.description) s.append(el("div", { class: "dim" }, op.description));
  if (op.parameters && op.parameters.length) {
    const t = el("table");
    for (const p of op.parameters) {
      t.append(el("tr", {}, el("td", {}, el("code", {}, p.name), p.required ? " *" : ""), el("td", { class: "dim" }, p.in + ", " + typeOf(p.schema)), el("td", {}, notes(p.schema) || p.description)));
    }
    s.append(el("h4", {}, "Parameters"), t);
  }
  for (const [type, media] of Object.entries((op.requestBody || {}).content || {})) {
    s.append(el("h4", {}, "Body: " + type), fields(doc, media.schema, 0) || el("div", { class: "dim" }, typeOf(media.schema)));
  }
  for (const [status, r] of Object.entries(op.responses)) {
    const d = el("details", {}, el("summary", {}, el("code", {}, status), " ", r.description || ""));
    for (const [type, media] of Object.entries(r.content || {})) {
      d.append(el("div", { class: "dim" }, type + ": " + typeOf(media.schema)), fields(doc, media.schema, 0) || "");
    }
    s.append(d);
  }
  s.append(el("pre", {}, curl(method, path, op)));
  return s;
}

async function render() {
  const doc = await (await fetch("/openapi.json")).json();
  const main = document.getElementById("main"), toc = document.getElementById("toc");
  main.replaceChildren(el("h1", {}, doc.info.title + " API"), el("div", { class: "dim" }, "Version " + doc.info.version), el("p", {}, doc.info.description));
  main.append(el("p", {}, el("a", { href: "/openapi.json" }, "openapi.json")));
  for (const tag of doc.tags) {
    toc.append(el("h2", {}, tag.name));
    main.append(el("h2", {}, tag.name), el("p", { class: "dim" }, tag.description));
    for (const [path, item] of Object.entries(doc.paths)) {
      for (const method of ["get", "post", "put", "patch", "delete"]) {
        const op = item[method];
        if (!op || !op.tags.includes(tag.name)) continue;
        toc.append(el("a", { href: "#" + op.operationId, "data-text": (method + path + op.summary).toLowerCase() }, op.summary));
        main.append(operation(doc, method.toUpperCase(), path, op));
      }
    }
  }
  document.getElementById("filter").addEventListener("input", (e) => {
    for (const a of toc.querySelectorAll("a")) a.hidden = !a.dataset.text.includes(e.target.value.toLowerCase());
  });
  if (location.hash) document.querySelector(location.hash)?.scrollIntoView();
}

render().catch((e) => { document.getElementById("main").textContent = "The description could not be loaded: " + e; });
