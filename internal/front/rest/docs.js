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
  const either = s.oneOf || s.anyOf;
  if (either) return either.map(typeOf).filter(Boolean).join(" or ");
  if (s.type === "null") return "null";
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
  if (schema && schema.anyOf) {
    const shapes = schema.anyOf.filter((s) => s.$ref);
    if (shapes.length === 1) return fields(doc, shapes[0], depth);
    const all = el("div");
    for (const s of shapes) all.append(el("div", { class: "dim" }, refName(s)), fields(doc, s, depth) || "");
    return all;
  }
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
  for (const [status, answer] of Object.entries(op.responses)) {
    const r = answer.$ref ? doc.components.responses[refName(answer)] : answer;
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
  const tags = new Map(doc.tags.map((t) => [t.name, { description: t.description, operations: [] }]));
  for (const [path, item] of Object.entries(doc.paths)) {
    for (const method of ["get", "post", "put", "patch", "delete"]) {
      const op = item[method];
      if (!op) continue;
      const name = op.tags[0];
      if (!tags.has(name)) tags.set(name, { description: "", operations: [] });
      tags.get(name).operations.push({ method, path, op });
    }
  }
  const groups = [];
  for (const [name, { description, operations }] of tags) {
    const heads = [el("h2", {}, name)], shown = [el("h2", { id: "tag-" + name }, name), el("p", { class: "dim" }, description)];
    toc.append(...heads);
    main.append(...shown);
    const items = operations.map(({ method, path, op }) => {
      const link = el("a", { href: "#" + op.operationId }, op.summary);
      const section = operation(doc, method.toUpperCase(), path, op);
      toc.append(link);
      main.append(section);
      return { text: [method, path, op.operationId, op.summary, name].join(" ").toLowerCase(), nodes: [link, section] };
    });
    groups.push({ heads: [...heads, ...shown], items });
  }
  // Every word must be in what describes an operation; a heading stays with one of its operations.
  document.getElementById("filter").addEventListener("input", (e) => {
    const words = e.target.value.toLowerCase().split(/\s+/).filter(Boolean);
    let any = false;
    for (const { heads, items } of groups) {
      let some = false;
      for (const { text, nodes } of items) {
        const match = words.every((w) => text.includes(w));
        some = some || match;
        for (const n of nodes) n.hidden = !match;
      }
      for (const h of heads) h.hidden = !some;
      any = any || some;
    }
    document.getElementById("none").hidden = any;
  });
  if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
}

render().catch((e) => { document.getElementById("main").textContent = "The description could not be loaded: " + e; });
